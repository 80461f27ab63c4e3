"""Classic, consumer, share and streams groups, and committed offsets. Pure; see foundation/decision.py."""
