"""Transaction coordinator: a pure state machine for producer ids, transaction state and transaction markers."""
