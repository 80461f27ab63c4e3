"""The audit log: who was denied what, who logged in, and who changed what. Pure.

Events that are the same except for their time are written once a minute, with their number. So neither the log nor
the memory grows with the number of requests. Values of settings and passwords are never part of an event.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Any, Final

REPEAT_S: Final = 60.0
"""Seconds in which an event is written once, and then its repetitions together."""
KINDS_MAX: Final = 10_000
"""Number of different events that are remembered; above it, they are written as they come."""
NAMES_MAX: Final = 100
"""Maximum number of resources that one event names."""
CHARS_MAX: Final = 300
"""Maximum length of a name: clients choose some of them."""


class Kind(StrEnum):
    """The kinds of events, each of which the setting audit.events can select."""

    DENIED = "denied"
    ALLOWED = "allowed"
    LOGINS = "logins"
    CHANGES = "changes"


Event = dict[str, Any]
"""The fields of an event, without its time and number."""


class AuditLog:
    """Writes events that are selected, and counts repeated ones."""

    def __init__(self, write: Callable[[Event], None], now_s: Callable[[], float], kinds: Collection[Kind]) -> None:
        """`write` is called with each event that is due. `kinds`: which ones are wanted."""
        self._write = write
        self._now_s = now_s
        self._seen: dict[tuple[Any, ...], tuple[float, int, Event]] = {}
        """By event: since when it counts, the repetitions that are not written yet, and its fields."""
        self.notes_denied: Final = Kind.DENIED in kinds
        self.notes_allowed: Final = Kind.ALLOWED in kinds
        self._logins = Kind.LOGINS in kinds
        self._changes = Kind.CHANGES in kinds

    def access(self, *, allowed: bool, principal: str, host: str, operation: str, resource: tuple[str, str]) -> None:
        """A client may do something, or may not. `resource`: type and name."""
        if self.notes_allowed if allowed else self.notes_denied:
            event = "allowed" if allowed else "denied"
            kind, name = resource
            self._note(event=event, principal=principal, host=host, operation=operation, type=kind, name=name)

    def login(
        self,
        *,
        ok: bool,
        user: str,
        host: str,
        listener: str,
        mechanism: str,
        token_id: str = "",
        reason: str = "",
    ) -> None:
        """A client has logged in, or has failed to. `token_id`: of the delegation token that it has used."""
        if self._logins:
            event = "login" if ok else "login_failed"
            known = {name: text for name, text in (("token", token_id), ("reason", reason)) if text}
            self._note(
                event=event, principal=f"User:{user}", host=host, listener=listener, mechanism=mechanism, **known
            )

    def change(self, *, api: str, principal: str, host: str, names: Sequence[str], failed: bool) -> None:
        """A client has asked for a change of resources with these names."""
        if self._changes:
            shown = sorted(dict.fromkeys(name[:CHARS_MAX] for name in names[:NAMES_MAX]))
            more = len(names) - NAMES_MAX
            self._note(
                event="change_failed" if failed else "change",
                principal=principal,
                host=host,
                operation=api,
                name=", ".join(shown) + (f" and {more} more" if more > 0 else ""),
            )

    def _note(self, **fields: str) -> None:
        event = {name: value[:CHARS_MAX] for name, value in fields.items()}
        key = tuple(event.values())
        now_s = self._now_s()
        since_s, count, _ = self._seen.get(key, (now_s, -1, event))
        if count >= 0 and now_s < since_s + REPEAT_S:
            self._seen[key] = since_s, count + 1, event
            return
        if count > 0:
            self._write({**event, "count": count})
        self._write({**event, "count": 1})
        if key in self._seen or len(self._seen) < KINDS_MAX:
            self._seen[key] = now_s, 0, event

    def flush(self, *, all_of_them: bool = False) -> None:
        """Writes the repetitions that are a minute old; call it every few seconds."""
        due_s = self._now_s() - REPEAT_S
        for key, (since_s, count, event) in list(self._seen.items()):
            if since_s <= due_s or all_of_them:
                del self._seen[key]
                if count:
                    self._write({**event, "count": count})
