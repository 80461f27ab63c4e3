"""The Python API for threads."""
