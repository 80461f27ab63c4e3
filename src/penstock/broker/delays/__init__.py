"""Delayed messages put to work: copied when they are committed, hidden until they are due, delivered then."""
