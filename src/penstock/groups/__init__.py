"""Consumer groups: membership, assignors, offsets. Pure state machines; see foundation/decision.py."""
