"""Views (filtered virtual topics): the language of their filter expressions, and its evaluation over records."""
