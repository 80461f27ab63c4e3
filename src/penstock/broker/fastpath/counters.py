"""What all express lanes count, until the connection has reported it; see produce_and_fetch.py."""

from penstock.wire.keys import ApiKey


class Lane:
    """Requests of one version of one API, from one connection."""

    api_key: ApiKey

    def __init__(self, version: int) -> None:
        self._version = version
        self.count = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def take_counts(self, seconds: float) -> tuple[int, float, int, int]:
        """What was counted since the last time; each request took `seconds`."""
        taken = self.count, seconds, self.bytes_in, self.bytes_out
        self.count = self.bytes_in = self.bytes_out = 0
        return taken
