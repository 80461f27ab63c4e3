"""Consumer groups (KIP-848): the broker assigns partitions, and members reconcile in heartbeats."""
