"""The coordination service behind one port: the only truth about the cluster."""
