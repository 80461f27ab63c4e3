"""Who may do what: signatures of requests, and the keys that they are made with."""
