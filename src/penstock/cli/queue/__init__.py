"""`penstock queue`: SQS queues and their messages."""
