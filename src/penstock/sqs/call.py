"""One SQS request as its action sees it: parameters in JSON form, caller, queue lookup, ARNs and URLs."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.broker.client_limits import ClientLimits, Meter
from penstock.broker.queues.service import QueueService
from penstock.cluster.queues import Queue
from penstock.foundation.http import HttpRequest
from penstock.foundation.proxies import Proxies
from penstock.foundation.time_slices import TimeSlices
from penstock.security.authorizer import Authorizer
from penstock.security.certificate_principal import ANONYMOUS
from penstock.security.credentials import AccessKey
from penstock.security.errors import AccessDenied
from penstock.security.policies import Request, allows, denies
from penstock.security.sigv4 import region_of
from penstock.sqs import checks, errors
from penstock.sqs.checks import Params
from penstock.sqs.codecs import JSON, Codec
from penstock.sqs.limits import FULL_NAME_CHARS_MAX, TRACE_CHARS_MAX
from penstock.sqs.namespaces import Namespace, is_account, is_region, owner_of
from penstock.sqs.permissions import POLICY, SHARED_ACTIONS
from penstock.sqs.policy_facts import facts_of
from penstock.sqs.queue_names import (
    ACCOUNT,
    REGION,
    ArnParts,
    account_of,
    arn_of,
    parts_of_arn,
    split_url,
    url_of,
)

Result = dict[str, Any] | None
"""The result of an action in the form of the JSON protocol; None if AWS returns no result for the action."""
_HOST: Final = re.compile(rb"[A-Za-z0-9._\-:\[\]]{1,255}")


NO_PROXIES: Final = Proxies()
_UNLOCKING: Final = frozenset(("SetQueueAttributes", "RemovePermission"))
"""Actions that a policy does not deny to the queue's own account, which could not be allowed again otherwise."""


class Endpoint(NamedTuple):
    """The SQS settings of a broker, such as the host, account and region for requests that name none."""

    host: str
    """This broker's address, used in queue URLs if a request has no valid Host header."""
    account: str = ACCOUNT
    region: str = REGION
    has_regions: bool = False
    """Whether queues with the same name in different regions are different queues."""
    is_local: bool = False
    """Whether only programs on this machine can reach this endpoint."""
    proxies: Proxies = NO_PROXIES
    """Load balancers in front of brokers."""
    now_ms: Callable[[], int] = lambda: 0
    is_strict: Callable[[], bool] = lambda: False
    """Function that returns whether AWS's 60-second waits after DeleteQueue and PurgeQueue apply."""
    authorizer: Authorizer | None = None
    """Decides about the topics that queues are attached to; None if clients may use every topic."""


@dataclass(slots=True)
class Call:
    """One request for an SQS action."""

    action: str
    params: Params
    service: QueueService
    request: HttpRequest
    caller: AccessKey | None
    """The access key that signed the request; None if signatures are not required."""
    endpoint: Endpoint
    slices: TimeSlices
    codec: Codec = JSON
    meter: Meter | None = None
    """Counts the bytes that the caller sends or receives; None if it has no quota of them."""
    limits: ClientLimits | None = None
    """All quotas of the caller; None if it has none."""
    on_lost: Callable[[], None] | None = None
    """Callback that undoes the action if the client cannot have received the response; None if nothing is undone."""

    # -- queues

    def queue(self) -> Queue:
        """Returns the queue named by the QueueUrl parameter. Raises UnknownQueue, or AccessDenied."""
        url = self.params.get("QueueUrl")
        if type(url) is not str or not url:
            url = checks.text(self.params, "QueueUrl")
        account, name = split_url(url)
        return self._default_queue(name, account) or self.queue_named(name, account if is_account(account) else "")

    def _default_queue(self, name: str, account: str) -> Queue | None:
        """Fast path of `queue`: returns a queue of the default account; None if the slow path must find the queue."""
        caller, endpoint = self.caller, self.endpoint
        if endpoint.has_regions or "." in name or account not in (endpoint.account, ACCOUNT):
            return None
        if caller is None:
            return self.service.queue(name)
        found = self.service.queue(name) if caller.owner == ACCOUNT and caller.may_use(name) else None
        if found is None or found.owner != ACCOUNT:
            return None
        self.check_denied(found, name, self.space)
        return found

    def queue_named(self, name: str, account: str = "") -> Queue:
        """Returns the queue by name and account ("": the caller's account). Raises UnknownQueue or AccessDenied."""
        if len(name) > FULL_NAME_CHARS_MAX:
            raise errors.UnknownQueue(name)
        space = own = self.space
        if account:
            space = Namespace(owner_of(account, self.endpoint.account), own.region)
        if self.caller is None:
            found = self.find(name, space) or self.find(name, own)
        elif space.owner != own.owner:
            return self._shared_queue(name, space)
        else:
            self.check_access(name)
            found = self.find(name, own)
            if found is not None:
                self.check_denied(found, name, own)
        if found is None:
            raise errors.UnknownQueue(space.full(name))
        return found

    def find(self, name: str, space: Namespace | None = None) -> Queue | None:
        """Returns the queue of this name in a namespace (account and region; default: the caller's), or None.
        Without signatures, `name` may have the account id as prefix: `111122223333.jobs`."""
        space = space or self.space
        found = self.service.queue(space.full(name))
        if found is not None and (self.caller is None or space.has(found, self.endpoint.account)):
            return found
        if space.owner == ACCOUNT:
            return None
        found = self.service.queue(space.before + name)
        return found if found is not None and space.has(found, self.endpoint.account) else None

    def _shared_queue(self, name: str, space: Namespace) -> Queue:
        """Returns another account's queue if its policy allows the action; otherwise raises an error that does not
        reveal whether the queue exists."""
        caller, found = self.caller, self.find(name, space)
        assert caller is not None
        arn = arn_of(self.region, account_of(space.owner, self.endpoint.account), name)
        policy = "" if found is None else found.settings.others.get(POLICY, "")
        is_shared = caller.may_use(name) and self.action.removesuffix("Batch") in SHARED_ACTIONS
        if found is not None and is_shared and allows(policy, self._policy_request(caller, arn)):
            return found
        if self.action == "GetQueueUrl":
            raise errors.UnknownQueue(space.full(name), message=errors.NO_QUEUE_OR_NO_ACCESS)
        refused = f"sqs:{self.action.lower()}"
        raise errors.UnknownQueue(
            space.full(name) if found is None else "",
            errors.REFUSALS["AccessDenied"],
            f"User: {caller.access_key} is not authorized to perform: {refused} on resource: {arn} because no "
            f"resource-based policy allows the {refused} action",
        )

    def check_denied(self, queue: Queue, name: str, space: Namespace) -> None:
        """Raises AccessDenied if the policy of a queue of the caller's account denies the request."""
        policy = queue.settings.others.get(POLICY)
        if policy is None or self.caller is None or self.action in _UNLOCKING:
            return
        arn = arn_of(self.region, account_of(space.owner, self.endpoint.account), name)
        if denies(policy, self._policy_request(self.caller, arn)):
            action = f"sqs:{self.action.lower()}"
            raise AccessDenied(
                f"User: {self.caller.access_key} is not authorized to perform: {action} on resource: {arn} with an "
                "explicit deny in a resource-based policy"
            )

    def _policy_request(self, caller: AccessKey, arn: str) -> Request:
        account = account_of(caller.owner, self.endpoint.account)
        return Request(
            account,
            self.action.removesuffix("Batch"),
            arn,
            lambda: facts_of(self.request, account, self.region, self.endpoint.proxies, self.endpoint.now_ms()),
        )

    def check_access(self, name: str) -> None:
        """Raises AccessDenied if the caller's access key does not allow queues of this name in its own account."""
        caller = self.caller
        if caller is not None and not caller.may_use(name):
            action = f"sqs:{self.action.lower()}"
            arn = arn_of(self.region, self.account(None), name)
            raise AccessDenied(
                f"User: {caller.access_key} is not authorized to perform: {action} on resource: {arn} because no "
                f"identity-based policy allows the {action} action"
            )

    def listed_name(self, queue: Queue) -> str:
        """Returns the queue's name for ListQueues, without account and region; "" if the caller may not see it."""
        space = self.space
        name = space.own_name(queue)
        if self.caller is None or not name:
            return name
        return name if space.has(queue, self.endpoint.account) and self.caller.may_use(name) else ""

    # -- namespaces

    @property
    def owner(self) -> str:
        """The owner of queues that this request creates: the access key's owner; if unsigned, the default account."""
        return self.caller.owner if self.caller is not None else ACCOUNT

    @property
    def space(self) -> Namespace:
        """The namespace (account and region) of the caller: its account, and the region of the request."""
        owner = ACCOUNT if self.caller is None else owner_of(self.caller.owner, self.endpoint.account)
        return Namespace(owner, self._region_apart(self.region)) if self.endpoint.has_regions else Namespace(owner)

    def _region_apart(self, region: str) -> str:
        """Returns the region prefix of a queue's name in the cluster; "" for the default region or shared queues."""
        is_apart = self.endpoint.has_regions and region != self.endpoint.region and is_region(region)
        return region if is_apart else ""

    def space_of(self, queue: Queue) -> Namespace:
        """Returns the namespace of a queue that this request uses: its owner's account, in the request's region."""
        return self.space._replace(owner=owner_of(queue.owner, self.endpoint.account))

    def space_in_arn(self, parts: ArnParts) -> Namespace:
        """Returns the namespace (account, region) in an ARN; a part missing in the ARN is the caller's."""
        own = self.space
        owner = owner_of(parts.account, self.endpoint.account) if is_account(parts.account) else own.owner
        region = self._region_apart(parts.region) if parts.region else own.region
        space = Namespace(owner, region)
        # Without signatures there are no accounts, but templates written for AWS contain account ids.
        is_missing = self.caller is None and self.service.queue(space.full(parts.name)) is None
        return own if is_missing else space

    def full_name_in_arn(self, arn: str) -> str | None:
        """Returns the full name of the queue in an ARN: `111122223333.jobs`, or `jobs` in the default account. The
        queue need not exist. None if `arn` is not a queue's ARN."""
        parts = parts_of_arn(arn)
        if parts is None:
            return None
        space = self.space_in_arn(parts)
        found = self.find(parts.name, space)
        return space.full(parts.name) if found is None else found.name

    # -- the caller

    @property
    def principal(self) -> str:
        """Whose ACLs and quotas apply to this request."""
        return ANONYMOUS if self.caller is None else self.caller.principal

    @property
    def caller_name(self) -> str:
        """The caller as error messages name it."""
        return "anonymous" if self.caller is None else self.caller.access_key

    # -- names in the response

    @property
    def sender(self) -> str:
        """The account or owner recorded as a message's SenderId; empty for an unsigned request."""
        owner = self.caller.owner if self.caller is not None else ""
        return self.endpoint.account if owner == ACCOUNT else owner

    @property
    def trace(self) -> bytes:
        """Value of the X-Amzn-Trace-Id header (AWS X-Ray); empty if it is missing, too long, or not ASCII text."""
        value = self.request.headers.get(b"x-amzn-trace-id", b"")
        return value if len(value) <= TRACE_CHARS_MAX and value.isascii() and checks.is_legal(value) else b""

    @property
    def region(self) -> str:
        """The region in the request's signature; the default region if there is none."""
        return region_of(self.request) or self.endpoint.region

    def account(self, queue: Queue | None) -> str:
        """Returns the id of the account that owns `queue`; if None, of the account that this request acts for."""
        return account_of(self.owner if queue is None else queue.owner, self.endpoint.account)

    def arn(self, full: str) -> str:
        """Returns the ARN of the queue with the full name `111122223333.jobs` or, in the default account, `jobs`."""
        queue = self.service.queue(full)
        space = self.space if queue is None else self.space_of(queue)
        return arn_of(self.region, self.account(queue), space.local(full))

    def url(self, queue: Queue) -> str:
        """Returns the queue's URL, with the host that the client used in this request."""
        return self.url_of(self.space_of(queue).local(queue.name), self.account(queue))

    def url_of(self, name: str, account: str) -> str:
        headers = self.request.headers
        host = headers.get(b"host", b"")
        is_secure = self.request.is_secure or headers.get(b"x-forwarded-proto", b"").lower() == b"https"
        scheme = "https" if is_secure else "http"
        found = host.decode() if _HOST.fullmatch(host) else self.endpoint.host
        return url_of(found, scheme, account, name)
