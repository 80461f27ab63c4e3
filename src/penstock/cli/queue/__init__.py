"""`penstock queue`: queues and their messages."""
