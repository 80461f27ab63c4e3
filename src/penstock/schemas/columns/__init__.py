"""Codecs between encoded messages and Arrow columns. They need pyarrow; brokers never import them."""
