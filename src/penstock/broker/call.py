"""A Kafka request that waits for its response: client, correlation id, and encoding of the response."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from penstock.broker.audited_changes import has_failed
from penstock.broker.client_limits import ClientLimits
from penstock.foundation.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType
from penstock.foundation.errors import NotAuthorized
from penstock.security.audit import AuditLog
from penstock.security.authorizer import Authorizer
from penstock.security.certificate_principal import ANONYMOUS
from penstock.security.login_sessions import LoginSession
from penstock.wire.codec import ELEMENTS_INLINE_MAX
from penstock.wire.codegen import TooManyElements
from penstock.wire.encoders import UNBOUNDED
from penstock.wire.frames import response_frame
from penstock.wire.keys import ApiKey
from penstock.wire.schema import Buffer, with_field

_ALL_OPERATIONS = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in OPERATIONS_OF.items()
}


class Call:
    """A client request that waits for its response. A connection sends responses in the order of its requests."""

    __slots__ = (
        "_encode_later",
        "_on_answer",
        "amend",
        "api_key",
        "audit",
        "authorizer",
        "changes",
        "client_id",
        "correlation_id",
        "frame_bytes",
        "hang_up",
        "is_answered",
        "is_disconnected",
        "limits",
        "listener",
        "login",
        "on_disconnect",
        "parts",
        "peer",
        "piece",
        "principal",
        "release",
        "started_s",
        "throttle_ms",
        "version",
        "was_denied",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        started_s: float,
        frame_bytes: int,
        peer: str,
        on_answer: "Callable[[Call], None]",
        encode_later: "Callable[[Call, Any], None] | None" = None,
        listener: str = "",
        principal: str = ANONYMOUS,
        login: LoginSession | None = None,
        authorizer: Authorizer | None = None,
        limits: ClientLimits | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """`encode_later`: called in place of `on_answer` for a large response; encodes it in slices and sends it.
        `listener`: name of the listener that the request came in on. `login`: None if the listener has no SASL.
        `authorizer`: None if all clients may do everything.
        `limits`: None if the client has no quota."""
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_s = started_s
        self.frame_bytes = frame_bytes
        self.peer = peer
        self.listener = listener
        self.principal = principal
        self.login = login
        self.authorizer = authorizer
        self.audit = audit
        self.changes: list[str] | None = None
        """The resources that the request changes, for the audit log; None if it changes nothing."""
        self.limits = limits
        self.throttle_ms = 0
        """For how long the connection handles no further request, because the client has exceeded a quota."""
        self.was_denied = False
        """Whether the client may not do a part of what it has requested."""
        self._on_answer = on_answer
        self._encode_later = encode_later
        self.parts: list[Buffer] | None = None
        self.hang_up = False
        self.amend: Callable[[Any], Any] | None = None
        """Changes the response before it is sent: adds what this broker has refused before it asked a coordinator."""
        self.is_answered = False
        self.is_disconnected = False
        """Whether the client's connection is closed: long-running work for this request may stop."""
        self.piece = 0
        """Index of this part of a large request that is split into parts (large_requests.py); 0 if not split."""
        self.release: Callable[[], None] | None = None
        """Frees memory reserved for a large request; called when its response was sent or the connection closed."""
        self.on_disconnect: Callable[[], None] | None = None
        """Called if the connection closes before the response is sent; cancels the work done for this request."""

    @property
    def host(self) -> str:
        """The client's host, without the port."""
        return self.peer.rpartition(":")[0]

    def allows(self, operation: Operation, resource_type: ResourceType, name: str, *, audited: bool = True) -> bool:
        """Whether the client may do this with a resource, which need not exist. `audited`: it has asked for it, so
        that a denial is part of the audit log."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        allowed = authorizer.allows(self.principal, self.host, operation, resource_type, name)
        if self.audit is not None and audited and (self.audit.notes_allowed or not allowed):
            resource = resource_type.name.lower(), name
            self.audit.access(
                allowed=allowed,
                principal=self.principal,
                host=self.host.removeprefix("/"),
                operation=operation.name.lower(),
                resource=resource,
            )
        if not allowed:
            self.was_denied = True
        return allowed

    def allows_in_cluster(self, operation: Operation, *, audited: bool = True) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, audited=audited)

    def note_changes(self, names: list[str]) -> None:
        """The request changes these resources."""
        self.changes = [*(self.changes or ()), *names]

    def check(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raises the NotAuthorized of the resource's type if the client may not do this. Does not tell whether the
        resource exists."""
        if not self.allows(operation, resource_type, name):
            raise NotAuthorized.of(self.principal, operation, resource_type, name)

    def check_cluster(self, operation: Operation) -> None:
        self.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of this type, existing or not, with which the client may do this."""
        authorizer = self.authorizer
        if authorizer is None or authorizer.allows_any(self.principal, self.host, operation, resource_type):
            return True
        self.was_denied = True
        return False

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Returns the operations that the client may do with a resource, as a bit field of responses."""
        if self.authorizer is None:
            return _ALL_OPERATIONS[resource_type]
        return self.authorizer.operations(self.principal, self.host, resource_type, name)

    def change_partitions(self, count: int) -> None:
        """Counts partitions that the client creates or deletes. Raises ThrottlingQuotaExceeded."""
        if self.limits is not None:
            self.limits.change(self.api_key, self.version, count, perf_counter())

    def _throttled(self, limits: ClientLimits, response: Any) -> Any:
        """Counts the request toward the client's quotas; returns the response with the time that it must pause."""
        self.throttle_ms = limits.throttle_ms(self.api_key, self.frame_bytes, response, perf_counter())
        if not self.throttle_ms or response is None or not hasattr(response, "throttle_time_ms"):
            return response
        return with_field(response, "throttle_time_ms", self.throttle_ms)

    def answer(self, response: Any, hang_up: bool = False) -> None:
        """Sends the response; call it once. Pass None if the protocol has no response (acks=0). `hang_up`: closes
        the connection afterwards."""
        self.hang_up = self.hang_up or hang_up
        self.is_answered = True
        self.on_disconnect = None
        if self.amend is not None and response is not None:
            response = self.amend(response)
        if self.limits is not None:
            response = self._throttled(self.limits, response)
        if self.changes is not None and self.audit is not None:
            self.audit.change(
                api=ApiKey(self.api_key).name.lower(),
                principal=self.principal,
                host=self.host.removeprefix("/"),
                names=self.changes,
                failed=has_failed(response),
            )
        limit = ELEMENTS_INLINE_MAX if self._encode_later is not None else UNBOUNDED
        try:
            self.parts = (
                [] if response is None else response_frame(response, self.version, self.correlation_id, limit)
            )
        except TooManyElements:
            assert self._encode_later is not None
            self._encode_later(self, response)
        else:
            self._on_answer(self)
