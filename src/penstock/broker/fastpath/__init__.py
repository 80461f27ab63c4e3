"""The fast path: requests with the same layout as an earlier request are handled without being decoded."""
