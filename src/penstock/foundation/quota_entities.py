"""Entities of client quotas: a user, a client id, both, or an address; each by its name or as the default. Pure."""

from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
DEFAULT: Final = None
"""As a name: all users, client ids or addresses that have no quota of their own."""

Entity = tuple[tuple[str, str | None], ...]
"""Types with names, sorted by type."""


def entity(**names: str | None) -> Entity:
    """Returns the entity with these names.

    >>> entity(user="ann", client_id=None)
    (('client-id', None), ('user', 'ann'))
    """
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in names.items()))
