"""Request and byte counters of a fast path, until the connection reports them as metrics."""

from penstock.wire.keys import ApiKey


class FastPath:
    """The fast path of one version of one API, on one connection."""

    api_key: ApiKey

    def __init__(self, version: int) -> None:
        self._version = version
        self.count = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def take_counts(self, seconds: float) -> tuple[int, float, int, int]:
        """Returns and resets the counters; `seconds` is the time that each request took."""
        taken = self.count, seconds, self.bytes_in, self.bytes_out
        self.count = self.bytes_in = self.bytes_out = 0
        return taken
