"""The coordination store (embedded SQLite, ZooKeeper or etcd), which holds the cluster metadata."""
