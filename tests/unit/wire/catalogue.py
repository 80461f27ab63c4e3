"""Every message of penstock.wire in every version: the parameters of the tests here."""

import pkgutil
from importlib import import_module
from typing import Final

import penstock.wire.messages
from penstock.wire.schema import REQUESTS, RESPONSES, message_of

for _module in pkgutil.iter_modules(penstock.wire.messages.__path__):
    import_module(f"penstock.wire.messages.{_module.name}")

MESSAGES: Final[list[type]] = [cls for registry in (REQUESTS, RESPONSES) for _, cls in sorted(registry.items())]
REQUEST_CLASSES: Final[list[type]] = [cls for cls in MESSAGES if message_of(cls).is_request]
VERSIONED: Final[list[tuple[type, int]]] = [
    (cls, version) for cls in MESSAGES for version in message_of(cls).versions
]


def api_name(cls: type) -> str:
    """`FetchRequest` and `FetchResponse` are both of the API `Fetch`."""
    return cls.__name__.removesuffix("Request").removesuffix("Response")


def label(value: object) -> str:
    """A test's id: `FetchRequest-12`."""
    return value.__name__ if isinstance(value, type) else str(value)


def is_flexible(cls: type, version: int) -> bool:
    return version >= message_of(cls).flexible_from
