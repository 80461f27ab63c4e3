"""Ready-made Spark pipelines, described by YAML files and validated before Spark starts."""
