"""Upgrade of classic groups to consumer groups, and downgrade of consumer groups to classic groups (KIP-848)."""
