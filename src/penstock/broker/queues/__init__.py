"""SQS queues on the broker: sends, receives, acknowledges, counts, moves and reclaims messages."""
