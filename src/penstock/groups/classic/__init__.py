"""Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, with the assignment computed by a member."""
