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
from penstock.security.sigv4 import region_of
from penstock.sqs import checks, errors
from penstock.sqs.checks import Params
from penstock.sqs.limits import QUEUE_NAME_CHARS_MAX
from penstock.sqs.naming import ACCOUNT, REGION, arn_of, name_in_url, url_of

T = TypeVar("T")
Result = dict[str, Any] | None
"""What an action gives, as JSON has it; None where AWS answers nothing."""
_HOST: Final = re.compile(rb"[A-Za-z0-9._\-:\[\]]{1,255}")


class Call(NamedTuple):
    action: str
    params: Params
    service: QueueService
    request: HttpRequest
    caller: AccessKey | None
    """Who has signed it; None if signatures are not asked for."""
    host: str
    """Where this broker is, for requests that do not say how they have found it."""
    slices: TimeSlices
    is_query: bool = False

    # -- what it is about

    def queue(self) -> Queue:
        """The queue whose URL is given. Raises QueueDoesNotExist, or AccessDenied."""
        url = self.params.get("QueueUrl")
        if type(url) is not str or not url:
            url = checks.text(self.params, "QueueUrl")
        return self.queue_named(name_in_url(url))

    def queue_named(self, name: str) -> Queue:
        if len(name) > QUEUE_NAME_CHARS_MAX:
            raise errors.UnknownQueue(name)
        if self.caller is not None:
            self.check_access(name)
        queue = self.service.queue(name)
        if queue is None:
            raise errors.UnknownQueue(name)
        return queue

    def check_access(self, name: str) -> None:
        """Refuse whoever may not use a queue of this name."""
        caller = self.caller
        if caller is not None and not caller.may_use(name):
            action = f"sqs:{self.action.lower()}"
            raise AccessDenied(
                f"User: {caller.access_key} is not authorized to perform: {action} on resource: "
                f"{self.arn(name)} because no identity-based policy allows the {action} action"
            )

    def may_see(self, name: str) -> bool:
        return self.caller is None or self.caller.may_use(name)

    # -- how things are called in its answer

    @property
    def owner(self) -> str:
        """Whose a queue is that this request creates."""
        return self.caller.owner if self.caller is not None else ACCOUNT

    @property
    def sender(self) -> str:
        """Who is noted as the sender of messages, if that is known."""
        return self.caller.owner if self.caller is not None else ""

    @property
    def region(self) -> str:
        """The region that the client believes to talk to."""
        return region_of(self.request) or REGION

    def arn(self, name: str) -> str:
        queue = self.service.queue(name)
        return arn_of(self.region, self.owner if queue is None else queue.owner, name)

    def url(self, queue: Queue) -> str:
        """The queue's URL, at the host by which the client has found us."""
        headers = self.request.headers
        host = headers.get(b"host", b"")
        scheme = "https" if headers.get(b"x-forwarded-proto", b"").lower() == b"https" else "http"
        return url_of(host.decode() if _HOST.fullmatch(host) else self.host, scheme, queue.owner, queue.name)


Finished = Result | Awaitable[Result]
"""A result, or one that takes several time slices to make."""


class Pending(NamedTuple):
    """A result that may not be there yet, and what is to be made of it."""

    found: Any
    """A list, or an Awaitable of one."""
    finish: Callable[[Any], Finished]
    undo: Callable[[Any], Callable[[], None] | None] | None = None
    """Makes of what was found what takes it back if the client has no answer; None: there is nothing to undo."""


Outcome = Pending | Finished
"""What carrying out an action gives: its result, or something to wait for."""


def then(
    found: "list[T] | Awaitable[list[T]]",
    finish: Callable[[list[T]], Finished],
    undo: Callable[[list[T]], Callable[[], None] | None] | None = None,
) -> Outcome:
    """Finish what is there now, or what will be."""
    return finish(found) if undo is None and isinstance(found, list) else Pending(found, finish, undo)
