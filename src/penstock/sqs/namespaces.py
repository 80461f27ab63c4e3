"""Accounts and regions: what queues are called below the API, where a name stands for one queue of the cluster.

A queue of the default account has its own name there, which is also that of its topic and of its share group: `jobs`.
One of another account has the account in front, `111122223333.jobs`; and where regions are kept apart, one of another
region than the default has the region in front of all, `eu-west-1.111122223333.jobs`. No queue's own name has a dot,
but for the end of a FIFO queue's.

Queues that were made before accounts were kept apart have no account in front, for any owner.
"""

import re
from typing import Final, NamedTuple

from penstock.cluster.queues import Queue
from penstock.sqs.queue_names import ACCOUNT, FIFO_SUFFIX

_ACCOUNT_ID: Final = re.compile(r"[0-9]{12}")
_REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")


def owner_of(text: str, default: str) -> str:
    """The account that an id, or the owner of a key or a queue, stands for; ACCOUNT for the default one.

    `default`: what the default account is called. A text that is no id of twelve digits is a name within it.

    >>> owner_of("111122223333", "123456789012"), owner_of("payments", "123456789012")
    ('111122223333', '000000000000')
    """
    return text if text not in (ACCOUNT, default) and _ACCOUNT_ID.fullmatch(text) else ACCOUNT


def is_account(text: str) -> bool:
    return _ACCOUNT_ID.fullmatch(text) is not None


def is_region(text: str) -> bool:
    return _REGION.fullmatch(text) is not None


class Namespace(NamedTuple):
    """The queues of one account in one region."""

    owner: str
    """ACCOUNT for the default one."""
    region: str = ""
    """Empty: the default region, or all of them where they are not kept apart."""

    @property
    def prefix(self) -> str:
        """What the full names of its queues begin with."""
        before = self.before
        return before if self.owner == ACCOUNT else f"{before}{self.owner}."

    @property
    def before(self) -> str:
        """What they began with before accounts were kept apart."""
        return f"{self.region}." if self.region else ""

    def full(self, name: str) -> str:
        """The name below the API of a queue.

        >>> Namespace("111122223333").full("jobs"), Namespace(ACCOUNT).full("jobs")
        ('111122223333.jobs', 'jobs')
        """
        return self.prefix + name

    def local(self, full: str) -> str:
        """The own name of a queue of this namespace, by its full name."""
        prefix = self.prefix if full.startswith(self.prefix) else self.before
        return full.removeprefix(prefix)

    def own_name(self, queue: Queue) -> str:
        """The own name of a queue that is in this region, of any owner; empty if it is in another one."""
        name = self.local(queue.name)
        is_own = name.endswith(FIFO_SUFFIX) == queue.settings.is_fifo and "." not in name.removesuffix(FIFO_SUFFIX)
        return name if is_own and queue.name.startswith(self.before) else ""

    def has(self, queue: Queue, default: str) -> bool:
        """Whether a queue is of this account and region. `default`: what the default account is called."""
        return owner_of(queue.owner, default) == self.owner and bool(self.own_name(queue))
