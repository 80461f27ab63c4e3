"""Pipelines: Spark jobs that are described by a file, checked before Spark starts, and watched while they run."""
