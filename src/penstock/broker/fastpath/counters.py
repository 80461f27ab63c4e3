"""Base class of the fast paths: counts requests and bytes until the connection reports them as metrics."""

from penstock.wire.keys import ApiKey


class FastPath:
    """Base class. A fast path answers repeated requests of one API version on a connection without decoding them."""

    api_key: ApiKey

    def __init__(self, version: int) -> None:
        self._version = version
        self.count = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def take_counts(self, seconds: float) -> tuple[int, float, int, int]:
        """Returns (count, `seconds`, bytes in, bytes out) and resets the counters. `seconds`: latency per request."""
        taken = self.count, seconds, self.bytes_in, self.bytes_out
        self.count = self.bytes_in = self.bytes_out = 0
        return taken
