"""Filtered views: the expression language and its evaluation over records."""
