"""Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, with the assignment made by a member."""
