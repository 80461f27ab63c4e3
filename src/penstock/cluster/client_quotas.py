"""Quotas of clients (KIP-546): their names, values, and the users, client ids and addresses they apply to. Pure."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from penstock.foundation.errors import InvalidRequest
from penstock.foundation.quota_entities import CLIENT_ID, IP, USER, Entity

PRODUCER_RATE: Final = "producer_byte_rate"
CONSUMER_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_RATE: Final = "connection_creation_rate"
_OF_CLIENTS: Final = frozenset((PRODUCER_RATE, CONSUMER_RATE, REQUEST_PERCENTAGE, MUTATION_RATE))
_OF_ADDRESSES: Final = frozenset((CONNECTION_RATE,))
_WHOLE: Final = frozenset((PRODUCER_RATE, CONSUMER_RATE, CONNECTION_RATE))
"""Quotas whose values have no fraction."""
NAME_CHARS_MAX: Final = 255

Quotas = Mapping[Entity, Mapping[str, float]]
"""All quotas of a cluster: values by name, by entity."""
Change = Mapping[str, float | None]
"""New values by name of the quota; None removes it."""


def check_change(entity: Entity, change: Change) -> None:
    """Raises InvalidRequest, with Kafka's messages, if an entity cannot have these quotas."""
    check_entity(entity)
    allowed = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    for name, value in change.items():
        if name not in allowed:
            raise InvalidRequest(f"Invalid configuration key {name}; expected {', '.join(sorted(allowed))}")
        if value is None:
            continue
        if not 0 < value < float("inf") and not (name == CONNECTION_RATE and value == 0):
            raise InvalidRequest(f"Quota {name} must be greater than 0")
        if name in _WHOLE and value != int(value):
            raise InvalidRequest(f"Quota {name} must be a whole number")


def check_entity(entity: Entity) -> None:
    """Raises InvalidRequest if there cannot be such an entity."""
    types = [kind for kind, _ in entity]
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}; expected {USER}, {CLIENT_ID} or {IP}")
        if name == "" or (name is not None and len(name) > NAME_CHARS_MAX):
            raise InvalidRequest(
                f"the name of a {kind} has 1 to {NAME_CHARS_MAX} characters; leave it out for the default"
            )
        if kind == IP and name is not None:
            _check_address(name)
    if len(set(types)) != len(types) or (IP in types and len(types) > 1):
        raise InvalidRequest(f"Invalid client quota entity combination: {', '.join(types)}")


def _check_address(text: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a valid IP address") from None
