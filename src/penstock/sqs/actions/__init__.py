"""One file per action of the SQS API; registry.load_actions imports them all."""
