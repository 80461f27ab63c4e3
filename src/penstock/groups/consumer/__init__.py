"""Consumer groups (KIP-848): the broker assigns partitions, and members adopt their assignments by heartbeats."""
