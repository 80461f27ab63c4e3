"""What Penstock costs, next to the least it could cost and next to its peers: `python -m bench --list`."""
