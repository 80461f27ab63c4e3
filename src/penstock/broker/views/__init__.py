"""Views put to work: topics read through filters."""
