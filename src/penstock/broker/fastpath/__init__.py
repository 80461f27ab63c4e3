"""The fast path: requests with the same layout as the previous one are handled without being decoded."""
