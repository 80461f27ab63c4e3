"""The schema registry: a replicated state machine whose records have the layout of Confluent's `_schemas` topic."""
