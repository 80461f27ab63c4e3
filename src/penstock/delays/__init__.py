"""Delayed messages: which wait for their time, and what becomes of them. Pure."""
