"""Real client libraries, unmodified, against a real broker process."""
