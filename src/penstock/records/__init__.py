"""Record batches, format v2: read, build, compress, filter, to columns and Arrow. No IO."""
