"""Schema formats: parses schemas, prints them as Confluent's registry stores them, and compares versions."""
