"""JSON columns: plain JSON and JSON Schema, decoded into Arrow columns and encoded from them."""
