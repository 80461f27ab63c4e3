"""Delayed messages on the broker: hidden from consumers, copied to a companion log, and delivered when due."""
