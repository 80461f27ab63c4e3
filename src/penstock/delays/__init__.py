"""Delayed messages: the state machine of pending messages and their delivery. Pure."""
