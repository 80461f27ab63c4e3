"""Accounts and regions: maps queue names of the SQS API to full names, which are unique in the cluster.

The full name is also the name of the queue's topic and share group. In the default account it is the queue name:
`jobs`. In another account, the account id is a prefix: `111122223333.jobs`. If regions have separate queues, a region
other than the default region comes first: `eu-west-1.111122223333.jobs`. A queue name has no dot, except in the
suffix of a FIFO queue. Queues created before accounts were separate have no account prefix, in any account.
"""

import re
from typing import Final, NamedTuple

from penstock.cluster.queues import Queue
from penstock.sqs.queue_names import ACCOUNT, FIFO_SUFFIX

_ACCOUNT_ID: Final = re.compile(r"[0-9]{12}")
_REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")


def owner_of(text: str, default: str) -> str:
    """Returns the account that `text` (an account id, or the owner of an access key or queue) means.

    The result is ACCOUNT for the default account, whose id is `default`, and for any text that is not twelve digits.

    >>> owner_of("111122223333", "123456789012"), owner_of("payments", "123456789012")
    ('111122223333', '000000000000')
    """
    return text if text not in (ACCOUNT, default) and _ACCOUNT_ID.fullmatch(text) else ACCOUNT


def is_account(text: str) -> bool:
    return _ACCOUNT_ID.fullmatch(text) is not None


def is_region(text: str) -> bool:
    return _REGION.fullmatch(text) is not None


class Namespace(NamedTuple):
    """The queue names of one account in one region."""

    owner: str
    """The account id; ACCOUNT for the default account."""
    region: str = ""
    """The region; empty for the default region, or if regions do not have separate queues."""

    @property
    def prefix(self) -> str:
        """Prefix of a queue's full name, which is unique in the cluster: region and account of this namespace; empty
        for the default region and account."""
        before = self.before
        return before if self.owner == ACCOUNT else f"{before}{self.owner}."

    @property
    def before(self) -> str:
        """Prefix of the full name of a queue created before accounts were separate: only the region."""
        return f"{self.region}." if self.region else ""

    def full(self, name: str) -> str:
        """Returns the full name of the queue `name` of this namespace.

        >>> Namespace("111122223333").full("jobs"), Namespace(ACCOUNT).full("jobs")
        ('111122223333.jobs', 'jobs')
        """
        return self.prefix + name

    def local(self, full: str) -> str:
        """Returns the queue name in a full name such as `111122223333.jobs`: removes the prefix of this namespace."""
        prefix = self.prefix if full.startswith(self.prefix) else self.before
        return full.removeprefix(prefix)

    def own_name(self, queue: Queue) -> str:
        """Returns the name of a queue without the prefix of this namespace; "" if the queue has another prefix."""
        name = self.local(queue.name)
        is_own = name.endswith(FIFO_SUFFIX) == queue.settings.is_fifo and "." not in name.removesuffix(FIFO_SUFFIX)
        return name if is_own and queue.name.startswith(self.before) else ""

    def has(self, queue: Queue, default: str) -> bool:
        """Whether a queue belongs to this account and region. `default`: the id of the default account, to which
        queues whose owner is not an account id belong, too."""
        return owner_of(queue.owner, default) == self.owner and bool(self.own_name(queue))
