"""One request, as its action sees it: parameters in the form that JSON has, whichever protocol they came by."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

from penstock.broker.queues.service import QueueService
from penstock.cluster.queues import Queue
from penstock.foundation.http import HttpRequest
from penstock.foundation.time_slices import TimeSlices
from penstock.security.credentials import AccessKey
from penstock.security.errors import AccessDenied
from penstock.security.policies import Request, allows
from penstock.security.sigv4 import region_of
from penstock.sqs import checks, errors
from penstock.sqs.checks import Params
from penstock.sqs.codecs import JSON, Codec
from penstock.sqs.limits import FULL_NAME_CHARS_MAX, TRACE_CHARS_MAX
from penstock.sqs.namespaces import Namespace, is_account, is_region, owner_of
from penstock.sqs.permissions import POLICY, SHARED_ACTIONS
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

T = TypeVar("T")
Result = dict[str, Any] | None
"""What an action gives, as JSON has it; None where AWS answers nothing."""
_HOST: Final = re.compile(rb"[A-Za-z0-9._\-:\[\]]{1,255}")


class Endpoint(NamedTuple):
    """What a broker says of queues where a request does not."""

    host: str
    """Where this broker is, for requests that do not say how they have found it."""
    account: str = ACCOUNT
    region: str = REGION
    has_regions: bool = False
    """Whether queues of one name in several regions are several queues."""
    is_local: bool = False
    """Whether only programs on this machine can reach it."""
    is_strict: Callable[[], bool] = lambda: False
    """Whether AWS's 60 seconds are waited for after a queue was deleted or purged."""


class Call(NamedTuple):
    action: str
    params: Params
    service: QueueService
    request: HttpRequest
    caller: AccessKey | None
    """Who has signed it; None if signatures are not asked for."""
    endpoint: Endpoint
    slices: TimeSlices
    codec: Codec = JSON

    # -- what it is about

    def queue(self) -> Queue:
        """The queue whose URL is given. Raises UnknownQueue, or AccessDenied."""
        url = self.params.get("QueueUrl")
        if type(url) is not str or not url:
            url = checks.text(self.params, "QueueUrl")
        account, name = split_url(url)
        return self._default_queue(name, account) or self.queue_named(name, account if is_account(account) else "")

    def _default_queue(self, name: str, account: str) -> Queue | None:
        """The queue of the default account that a request of it is about: most are, and need no namespaces."""
        caller, endpoint = self.caller, self.endpoint
        if endpoint.has_regions or "." in name or account not in (endpoint.account, ACCOUNT):
            return None
        if caller is None:
            return self.service.queue(name)
        found = self.service.queue(name) if caller.owner == ACCOUNT and caller.may_use(name) else None
        return found if found is not None and found.owner == ACCOUNT else None

    def queue_named(self, name: str, account: str = "") -> Queue:
        """The queue of this name in an account; empty: in the caller's."""
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
        if found is None:
            raise errors.UnknownQueue(space.full(name))
        return found

    def find(self, name: str, space: Namespace | None = None) -> Queue | None:
        """A queue of the caller's account, or of another one. Without signatures, a full name will do, too."""
        space = space or self.space
        found = self.service.queue(space.full(name))
        if found is not None and (self.caller is None or space.has(found, self.endpoint.account)):
            return found
        if space.owner == ACCOUNT:
            return None
        found = self.service.queue(space.before + name)
        return found if found is not None and space.has(found, self.endpoint.account) else None

    def _shared_queue(self, name: str, space: Namespace) -> Queue:
        """A queue of another account, whose policy allows what is asked for. Nobody is told whether it is there."""
        caller, found = self.caller, self.find(name, space)
        assert caller is not None
        action = self.action.removesuffix("Batch")
        arn = arn_of(self.region, account_of(space.owner, self.endpoint.account), name)
        if found is not None and caller.may_use(name) and action in SHARED_ACTIONS:
            account = account_of(caller.owner, self.endpoint.account)
            if allows(found.settings.others.get(POLICY, ""), Request(account, action, arn)):
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

    def check_access(self, name: str) -> None:
        """Refuse who may not use a queue of this name in its own account."""
        caller = self.caller
        if caller is not None and not caller.may_use(name):
            action = f"sqs:{self.action.lower()}"
            arn = arn_of(self.region, self.account(None), name)
            raise AccessDenied(
                f"User: {caller.access_key} is not authorized to perform: {action} on resource: {arn} because no "
                f"identity-based policy allows the {action} action"
            )

    def listed_name(self, queue: Queue) -> str:
        """The own name of a queue that this caller sees among its own; empty if it does not."""
        space = self.space
        name = space.own_name(queue)
        if self.caller is None or not name:
            return name
        return name if space.has(queue, self.endpoint.account) and self.caller.may_use(name) else ""

    # -- whose queues it is about

    @property
    def owner(self) -> str:
        """Whose a queue is that this request creates."""
        return self.caller.owner if self.caller is not None else ACCOUNT

    @property
    def space(self) -> Namespace:
        """The queues of the caller's account, in the region that it talks to."""
        owner = ACCOUNT if self.caller is None else owner_of(self.caller.owner, self.endpoint.account)
        return Namespace(owner, self._region_apart(self.region)) if self.endpoint.has_regions else Namespace(owner)

    def _region_apart(self, region: str) -> str:
        """What stands for a region in full names: nothing for the default one."""
        is_apart = self.endpoint.has_regions and region != self.endpoint.region and is_region(region)
        return region if is_apart else ""

    def space_of(self, queue: Queue) -> Namespace:
        """The namespace of a queue that this request is about."""
        return self.space._replace(owner=owner_of(queue.owner, self.endpoint.account))

    def space_in_arn(self, parts: ArnParts) -> Namespace:
        """Where an ARN says that a queue is; what it leaves out is as for the caller's own."""
        own = self.space
        owner = owner_of(parts.account, self.endpoint.account) if is_account(parts.account) else own.owner
        region = self._region_apart(parts.region) if parts.region else own.region
        space = Namespace(owner, region)
        # Without signatures nobody has an account: templates that were written for AWS name some.
        is_missing = self.caller is None and self.service.queue(space.full(parts.name)) is None
        return own if is_missing else space

    def full_name_in_arn(self, arn: str) -> str | None:
        """The full name of the queue that an ARN names; None if it is no ARN of a queue."""
        parts = parts_of_arn(arn)
        if parts is None:
            return None
        space = self.space_in_arn(parts)
        found = self.find(parts.name, space)
        return space.full(parts.name) if found is None else found.name

    # -- how things are called in its answer

    @property
    def sender(self) -> str:
        """Who is noted as the sender of messages, if that is known."""
        owner = self.caller.owner if self.caller is not None else ""
        return self.endpoint.account if owner == ACCOUNT else owner

    @property
    def trace(self) -> bytes:
        """The header by which AWS X-Ray follows requests; what is not text, or too long, is no such header."""
        value = self.request.headers.get(b"x-amzn-trace-id", b"")
        return value if len(value) <= TRACE_CHARS_MAX and value.isascii() and checks.is_legal(value) else b""

    @property
    def region(self) -> str:
        """The region that the client believes to talk to."""
        return region_of(self.request) or self.endpoint.region

    def account(self, queue: Queue | None) -> str:
        """The account of a queue, or of this request if there is none."""
        return account_of(self.owner if queue is None else queue.owner, self.endpoint.account)

    def arn(self, full: str) -> str:
        """The ARN of a queue, by its full name."""
        queue = self.service.queue(full)
        space = self.space if queue is None else self.space_of(queue)
        return arn_of(self.region, self.account(queue), space.local(full))

    def url(self, queue: Queue) -> str:
        """The queue's URL, at the host by which the client has found us."""
        return self.url_of(self.space_of(queue).local(queue.name), self.account(queue))

    def url_of(self, name: str, account: str) -> str:
        headers = self.request.headers
        host = headers.get(b"host", b"")
        scheme = "https" if headers.get(b"x-forwarded-proto", b"").lower() == b"https" else "http"
        found = host.decode() if _HOST.fullmatch(host) else self.endpoint.host
        return url_of(found, scheme, account, name)


Finished = Result | Awaitable[Result]
"""A result, or one that takes several time slices to make."""


class Pending(NamedTuple):
    """A result that may not be there yet, and what is to be made of it."""

    found: Any
    """A list, or an Awaitable of one."""
    finish: Callable[[Any], Finished]
    undo: Callable[[Any], Callable[[], None] | None] | None = None
    """Returns a function that undoes what was found, for a client that gets no answer; None: nothing to undo."""


Outcome = Pending | Finished
"""What carrying out an action gives: its result, or something to wait for."""


def then(
    found: "list[T] | Awaitable[list[T]]",
    finish: Callable[[list[T]], Finished],
    undo: Callable[[list[T]], Callable[[], None] | None] | None = None,
) -> Outcome:
    """Finish what is there now, or what will be."""
    return finish(found) if undo is None and isinstance(found, list) else Pending(found, finish, undo)
