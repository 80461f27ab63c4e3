"""Typed keys and values: the options `valueFormat` and `keyFormat`, for reading and for writing."""
