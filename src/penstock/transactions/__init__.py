"""Producer ids, transaction state, markers. A pure state machine; see foundation/decision.py."""
