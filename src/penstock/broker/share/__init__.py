"""Share groups on this broker: share sessions, acquired messages, and their delivery state (KIP-932)."""
