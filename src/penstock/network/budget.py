"""Memory budget for requests that are being received or await their response."""

from collections.abc import Callable


class ReceiveBudget:
    """Bounds the memory of requests that are partly received or await their response.

    Only received bytes count, not the announced length. Above the limit, connections that receive a large request are
    not read until other requests finish, except the connection of the oldest request: one request always progresses.
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
        """Opens a reservation for one request. If its `charge` has returned False, `resume` is called as soon as
        the connection may be read further."""
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
    """The bytes that one request takes from a ReceiveBudget."""

    __slots__ = ("_budget", "held_bytes", "resume")

    def __init__(self, budget: ReceiveBudget, resume: Callable[[], None]) -> None:
        self._budget = budget
        self.held_bytes = 0
        self.resume = resume

    def charge(self, count: int) -> bool:
        """Adds `count` received bytes to the reservation; returns whether its connection may be read further now."""
        return self._budget.charge(self, count)

    def close(self) -> None:
        """Returns the reserved bytes to the budget, because the request is finished."""
        self._budget.close(self)
