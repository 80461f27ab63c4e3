"""The seeded simulator: a fake clock, disk and network, and what runs on them."""
