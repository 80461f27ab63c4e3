"""The resources of the registry's REST API: one file for each, with the functions that answer its requests."""
