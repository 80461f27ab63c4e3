"""Record batches, format v2: read, build, compress, filter, convert to columns and Arrow. No IO."""
