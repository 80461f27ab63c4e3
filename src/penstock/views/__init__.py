"""Filtered views: the language of their expressions, and how it is put to records."""
