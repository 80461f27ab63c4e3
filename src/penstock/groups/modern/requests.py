"""Validation that the heartbeats of consumer, share and streams groups have in common."""

from collections.abc import Mapping

from penstock.foundation.errors import InvalidRequest


def check_not_blank(fields: Mapping[str, str | None]) -> None:
    """Raises InvalidRequest if a field is blank; None is allowed. `fields`: values by field name."""
    for name, value in fields.items():
        if value is not None and not value.strip():
            raise InvalidRequest(f"the {name} is empty")
