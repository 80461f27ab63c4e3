"""Memory budget for requests that are being received or await their response."""

from collections.abc import Callable


class ReceiveBudget:
    """Bounds the memory of requests that are partly received or await their response.

    Only received bytes count: an announced length costs nothing. Above the limit, reading pauses on connections with
    a large request until other requests finish. The oldest request is always read, so that one makes progress.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._reservations: dict[Reservation, None] = {}
        """All open reservations, the oldest first."""
        self._waiting: dict[Reservation, None] = {}

    @property
    def is_contended(self) -> bool:
        """Whether any request waits for memory."""
        return bool(self._waiting)

    def open(self, resume: Callable[[], None]) -> "Reservation":
        """Opens a reservation for one request. If `charge` returns False, `resume` is called when reading may
        continue."""
        reservation = Reservation(self, resume)
        self._reservations[reservation] = None
        return reservation

    def charge(self, reservation: "Reservation", count: int) -> bool:
        reservation.held_bytes += count
        self.held_bytes += count
        if self.held_bytes <= self._limit_bytes or next(iter(self._reservations)) is reservation:
            return True
        self._waiting[reservation] = None
        return False

    def close(self, reservation: "Reservation") -> None:
        if reservation not in self._reservations:
            return
        del self._reservations[reservation]
        self._waiting.pop(reservation, None)
        self.held_bytes -= reservation.held_bytes
        oldest = next(iter(self._reservations), None)
        for waiting in list(self._waiting):
            if self.held_bytes <= self._limit_bytes or waiting is oldest:
                self._waiting.pop(waiting, None)
                waiting.resume()


class Reservation:
    """The bytes that one request takes from a budget."""

    __slots__ = ("_budget", "held_bytes", "resume")

    def __init__(self, budget: ReceiveBudget, resume: Callable[[], None]) -> None:
        self._budget = budget
        self.held_bytes = 0
        self.resume = resume

    def charge(self, count: int) -> bool:
        """Adds received bytes to the reservation; returns whether the connection may read more now."""
        return self._budget.charge(self, count)

    def close(self) -> None:
        """Returns the reserved bytes to the budget, because the request is finished."""
        self._budget.close(self)
