"""Writes SQS requests to the audit log: failed signatures, denied requests, and changes of queues."""

from typing import Final

from penstock.foundation.errors import PenstockError
from penstock.foundation.http import HttpRequest
from penstock.foundation.proxies import Proxies
from penstock.security.audit import AuditLog
from penstock.security.certificate_principal import ANONYMOUS
from penstock.security.credentials import AccessKey
from penstock.security.errors import AccessDenied, Refused
from penstock.security.sigv4 import read_signed
from penstock.sqs.checks import Params
from penstock.sqs.errors import REFUSALS, SqsError
from penstock.sqs.queue_names import parts_of_arn, split_url

CHANGES: Final = frozenset(
    (
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "PurgeQueue",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    )
)
"""Actions that change queues, other than by sending, receiving and deleting messages."""
_DENIED: Final = REFUSALS["AccessDenied"]
_NAME_CHARS_MAX: Final = 300


class AuditTrail:
    """Notes requests in the audit log. The log counts repeated events instead of writing them again."""

    def __init__(self, log: AuditLog, proxies: Proxies) -> None:
        self._log = log
        self._proxies = proxies

    def refused(
        self, action: str, request: HttpRequest, caller: AccessKey | None, params: Params, error: PenstockError
    ) -> None:
        """Notes a request that failed, if it was not signed as it should be, or its caller may not do that."""
        if isinstance(error, Refused) and not isinstance(error, AccessDenied):
            self._login_failed(request, error)
        elif isinstance(error, AccessDenied) and error.topic:
            self._access(request, caller, error.operation, ("topic", error.topic), allowed=False)
        elif isinstance(error, AccessDenied) or (isinstance(error, SqsError) and error.fault is _DENIED):
            self._access(request, caller, f"sqs:{action}", ("queue", queue_named_in(params)), allowed=False)
        elif action in CHANGES:
            self._change(action, request, caller, params, failed=True)

    def done(self, action: str, request: HttpRequest, caller: AccessKey | None, params: Params) -> None:
        """Notes a request that succeeded, if it was a change, or if what is allowed is noted as well."""
        if self._log.notes_allowed:
            self._access(request, caller, f"sqs:{action}", ("queue", queue_named_in(params)), allowed=True)
        if action in CHANGES:
            self._change(action, request, caller, params, failed=False)

    def _login_failed(self, request: HttpRequest, error: PenstockError) -> None:
        try:
            claimed = read_signed(request).access_key
        except Refused:
            claimed = ""
        self._log.login(
            ok=False,
            user=claimed,
            host=self._proxies.client_host(request),
            listener="HTTP",
            mechanism="SigV4",
            reason=type(error).__name__,
        )

    def _access(
        self,
        request: HttpRequest,
        caller: AccessKey | None,
        operation: str,
        resource: tuple[str, str],
        *,
        allowed: bool,
    ) -> None:
        self._log.access(
            allowed=allowed,
            principal=_principal(caller),
            host=self._proxies.client_host(request),
            operation=operation,
            resource=resource,
        )

    def _change(
        self, action: str, request: HttpRequest, caller: AccessKey | None, params: Params, *, failed: bool
    ) -> None:
        self._log.change(
            api=f"sqs:{action}",
            principal=_principal(caller),
            host=self._proxies.client_host(request),
            names=[queue_named_in(params)],
            failed=failed,
        )


def queue_named_in(params: Params) -> str:
    """Returns the name of the queue that a request is about, as it was sent; empty if it names none.

    >>> queue_named_in({"QueueUrl": "http://127.0.0.1:9324/000000000000/jobs"})
    'jobs'
    """
    name, url, arn = (params.get(each) for each in ("QueueName", "QueueUrl", "SourceArn"))
    if isinstance(name, str):
        return name[:_NAME_CHARS_MAX]
    if isinstance(url, str):
        return split_url(url[-_NAME_CHARS_MAX:])[1]
    parts = parts_of_arn(arn[:_NAME_CHARS_MAX]) if isinstance(arn, str) else None
    return "" if parts is None else parts.name


def _principal(caller: AccessKey | None) -> str:
    return ANONYMOUS if caller is None else caller.principal
