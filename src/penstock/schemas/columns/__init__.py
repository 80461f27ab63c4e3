"""Codecs between encoded messages and Arrow columns. Needs pyarrow, from `penstock[spark]`; brokers never import it."""
