"""What a connection may be in the middle of, as bits: one look tells whether it is free."""

from typing import Final

GONE: Final = 1
STOPPED: Final = 2
WRITE_PAUSED: Final = 4
HAS_TASK: Final = 8
AWAITS_ROOM: Final = 16
HAS_MANY_CALLS: Final = 32
BLOCKED: Final = 63
"""Any of these: no request is handled."""
HAS_CALLS: Final = 64
HAS_REST: Final = 128
HAS_LARGE: Final = 256
