"""A bound on bytes that are held for requests still on their way in."""

from collections.abc import Callable


class ReceiveBudget:
    """Bounds the memory of requests that have arrived in part, or wait for their answer.

    Only bytes that have arrived count: a length that was announced costs nothing. Connections that would exceed the
    limit are not read from until others are done, except the one that began first, so that one always makes progress.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._loans: dict[Loan, None] = {}
        """All that are open, the oldest first."""
        self._waiting: dict[Loan, None] = {}

    @property
    def is_contended(self) -> bool:
        """Whether any request waits for room."""
        return bool(self._waiting)

    def open(self, resume: Callable[[], None]) -> "Loan":
        """A loan for one request; `resume` is called when it may go on after `charge` said no."""
        loan = Loan(self, resume)
        self._loans[loan] = None
        return loan

    def charge(self, loan: "Loan", count: int) -> bool:
        loan.held_bytes += count
        self.held_bytes += count
        if self.held_bytes <= self._limit_bytes or next(iter(self._loans)) is loan:
            return True
        self._waiting[loan] = None
        return False

    def close(self, loan: "Loan") -> None:
        if loan not in self._loans:
            return
        del self._loans[loan]
        self._waiting.pop(loan, None)
        self.held_bytes -= loan.held_bytes
        oldest = next(iter(self._loans), None)
        for waiting in list(self._waiting):
            if self.held_bytes <= self._limit_bytes or waiting is oldest:
                self._waiting.pop(waiting, None)
                waiting.resume()


class Loan:
    """What one request holds of a budget."""

    __slots__ = ("_budget", "held_bytes", "resume")

    def __init__(self, budget: ReceiveBudget, resume: Callable[[], None]) -> None:
        self._budget = budget
        self.held_bytes = 0
        self.resume = resume

    def charge(self, count: int) -> bool:
        """Counts bytes that have arrived; returns whether more may be read now."""
        return self._budget.charge(self, count)

    def close(self) -> None:
        """The request is done with."""
        self._budget.close(self)
