"""Delayed messages on the broker: copied once committed, hidden until due, then delivered."""
