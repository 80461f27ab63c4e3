"""The log of one partition: segments, indexes, leader epochs, producer state, recovery, retention, compaction."""
