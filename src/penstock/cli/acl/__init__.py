"""`penstock acl`: lists, adds, removes and explains the permissions (ACLs) of a cluster."""
