"""Which function handles which API, in which versions: what ApiVersions advertises is what stands here."""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.broker import handlers
from penstock.wire.keys import ApiKey
from penstock.wire.schema import REQUESTS, message_of

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.call import Call

Handler = Callable[[Any, "Call", "Broker"], Any]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API that this broker serves."""

    key: ApiKey
    request: type
    versions: range
    flexible_from: int
    handler: Callable[[Any, "Call", "Broker"], Any | Awaitable[Any] | None]
    """Returns the response, or None if it will be given to the call later, or an awaitable of the response."""


APIS: Final[dict[int, Api]] = {}


def handles(key: ApiKey, *, versions: range | None = None) -> Callable[[H], H]:
    """Register a handler for every version of an API that its schema has, or for fewer."""

    def register(handler: H) -> H:
        message = message_of(REQUESTS[key])
        APIS[key] = Api(
            key=key,
            request=REQUESTS[key],
            versions=versions or message.versions,
            flexible_from=message.flexible_from,
            handler=handler,
        )
        return handler

    return register


def load_handlers() -> None:
    """Import every handler file, so that each registers what it handles."""
    for module in pkgutil.iter_modules(handlers.__path__):
        importlib.import_module(f"{handlers.__name__}.{module.name}")
