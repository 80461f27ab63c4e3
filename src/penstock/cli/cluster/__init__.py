"""`penstock cluster`: status, reassignment, rebalancing and repair of a cluster."""
