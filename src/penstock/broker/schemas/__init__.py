"""The schema registry on this broker: its state machine, the process that checks schemas, and its topic."""
