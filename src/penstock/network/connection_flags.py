"""State flags of a Kafka connection in one integer: one test tells whether the connection may handle requests."""

from typing import Final

CLOSED: Final = 1
STOPPED: Final = 2
WRITE_PAUSED: Final = 4
HAS_TASK: Final = 8
AWAITS_MEMORY: Final = 16
HAS_MANY_CALLS: Final = 32
ENCODING: Final = 64
YIELDED: Final = 128
MUTED: Final = 4096
"""The client has exceeded a quota."""
BLOCKED: Final = 255 | MUTED
"""Mask of the flags that block a connection: while any of these flags is set, the connection handles no request."""
HAS_CALLS: Final = 256
HAS_PARTIAL: Final = 512
HAS_LARGE: Final = 1024
EXPIRED: Final = 2048
"""The session of a client that logged in has expired: it must authenticate again before anything else (KIP-368)."""
