"""One file an action of the API; registry.load_actions imports them all."""
