"""Writes requests to the schema registry to the audit log: wrong passwords, denied requests, and changes."""

from http import HTTPStatus
from typing import Final

from penstock.foundation.http import HttpRequest
from penstock.foundation.proxies import Proxies
from penstock.registry.access import claimed_key
from penstock.registry.rest import RestRequest
from penstock.security.audit import AuditLog

_PREFIX: Final = "registry:"


class RegistryAudit:
    """Notes requests in the audit log, at the broker that received them from the client."""

    def __init__(self, log: AuditLog, proxies: Proxies) -> None:
        self._log = log
        self._proxies = proxies

    def login_failed(self, request: HttpRequest) -> None:
        self._log.login(
            ok=False,
            user=claimed_key(request.headers),
            host=self._proxies.client_host(request),
            listener="HTTP",
            mechanism="Basic",
            reason="wrong access key or secret",
        )

    def answered(self, request: HttpRequest, principal: str, sent: RestRequest, is_change: bool, status: int) -> None:
        """Notes a request that was denied, or was a change, or is noted because all that are allowed are."""
        host, operation = self._proxies.client_host(request), f"{_PREFIX}{sent.method}"
        is_denied = status == HTTPStatus.FORBIDDEN
        if is_denied or self._log.notes_allowed:
            resource = ("schema", sent.path)
            self._log.access(
                allowed=not is_denied, principal=principal, host=host, operation=operation, resource=resource
            )
        if is_change and not is_denied:
            failed = status >= HTTPStatus.BAD_REQUEST
            self._log.change(api=operation, principal=principal, host=host, names=[sent.path], failed=failed)
