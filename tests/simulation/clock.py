"""A clock that only moves when a test moves it."""


class FakeClock:
    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._ms = start_ms
        self._set_by_ms = 0

    def now_ms(self) -> int:
        return self._ms + self._set_by_ms

    def steady_ms(self) -> int:
        return self._ms

    def monotonic_s(self) -> float:
        return self._ms / 1000

    def advance(self, ms: int) -> None:
        self._ms += ms

    def set_by(self, ms: int) -> None:
        """Sets the wall clock; the monotonic clock goes on as before."""
        self._set_by_ms = ms
