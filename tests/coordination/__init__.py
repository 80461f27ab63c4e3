"""Stores against real servers: one contract, and what happens when servers fail."""
