"""The blocking Python API, for threads."""
