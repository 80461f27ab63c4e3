"""Shared by all packages: clocks, ids, errors, settings, timers, state machine interface. No IO."""
