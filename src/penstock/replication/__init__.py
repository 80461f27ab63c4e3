"""Replicas on this broker: logs, high watermarks, replica fetchers, ISR and log maintenance, state machines."""
