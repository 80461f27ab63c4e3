"""Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup; the group leader computes the assignment."""
