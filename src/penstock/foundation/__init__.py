"""What every room may use: clocks, ids, errors, probes. No IO."""
