"""Share groups (KIP-932): several members read the same partitions and acknowledge each message."""
