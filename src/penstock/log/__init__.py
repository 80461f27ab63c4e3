"""The write-ahead log of one partition: segments, indexes, producer state, retention, compaction."""
