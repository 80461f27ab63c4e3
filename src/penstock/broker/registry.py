"""The registry of API handlers and their versions, from which ApiVersions is answered."""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.broker import handlers
from penstock.broker.audited_changes import CHANGES, names_in
from penstock.broker.permissions import Need, Refusal, refusal_of
from penstock.foundation.errors import NotAuthorized
from penstock.wire.keys import ApiKey
from penstock.wire.schema import REQUESTS, message_of

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.call import Call

Handler = Callable[[Any, "Call", "Broker"], Any]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One Kafka API that this broker serves: its key, versions, request type and handler."""

    key: ApiKey
    request: type
    versions: range
    flexible_from: int
    handler: Callable[[Any, "Call", "Broker"], Any | Awaitable[Any] | None]
    """Handles a request: returns the response, an awaitable of the response, or None if it answers the call later."""
    needs: tuple[Need, ...] = ()
    """Permissions that a client needs for the whole request."""


APIS: Final[dict[int, Api]] = {}


def handles(
    key: ApiKey, *needs: Need, versions: range | None = None, refuse: Refusal | None = None
) -> Callable[[H], H]:
    """Decorator that registers a handler for an API, for all versions in its schema or only for `versions`.

    It is called only if the client has the permissions `needs`; else `refuse` builds the response, which by default
    has the error as that of the whole request.
    """

    def register(handler: H) -> H:
        message = message_of(REQUESTS[key])
        APIS[key] = Api(
            key=key,
            request=REQUESTS[key],
            versions=versions or message.versions,
            flexible_from=message.flexible_from,
            handler=_audited(_guarded(handler, needs, refuse or refusal_of(key)) if needs else handler, key),
            needs=needs,
        )
        return handler

    return register


def _guarded(handler: Handler, needs: tuple[Need, ...], refuse: Refusal) -> Handler:
    def guarded(request: Any, call: "Call", broker: "Broker") -> Any:
        if call.authorizer is not None:
            try:
                for need in needs:
                    need.check(request, call)
            except NotAuthorized as error:
                return refuse(error)
        return handler(request, call, broker)

    return guarded


def _audited(handler: Handler, key: ApiKey) -> Handler:
    """Returns a handler that notes the resources which its requests change, if there is an audit log."""
    if key not in CHANGES:
        return handler

    def audited(request: Any, call: "Call", broker: "Broker") -> Any:
        if call.audit is not None:
            call.note_changes(names_in(request))
        return handler(request, call, broker)

    return audited


def load_handlers() -> None:
    """Imports every handler module; each registers its handler."""
    for module in pkgutil.iter_modules(handlers.__path__):
        importlib.import_module(f"{handlers.__name__}.{module.name}")
