"""Accounts and regions: maps the queue names of the API to names that are unique in the cluster.

A queue of the default account has its own name, which is also that of its topic and its share group: `jobs`. A queue
of another account has the account as prefix: `111122223333.jobs`. Where regions are separate, a queue outside the
default region has the region as first prefix: `eu-west-1.111122223333.jobs`. A queue's own name has no dot, except in
the suffix of a FIFO queue.

Queues created before accounts were separate have no account prefix, for any owner.
"""

import re
from typing import Final, NamedTuple

from penstock.cluster.queues import Queue
from penstock.sqs.queue_names import ACCOUNT, FIFO_SUFFIX

_ACCOUNT_ID: Final = re.compile(r"[0-9]{12}")
_REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")


def owner_of(text: str, default: str) -> str:
    """Returns the account for an account id, or for the owner of a key or a queue; ACCOUNT is the default account.

    `default`: the id of the default account. A text that is not an id of twelve digits is a name within it.

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
    """The account id; ACCOUNT for the default account."""
    region: str = ""
    """The region; empty for the default region, or if regions are not separate."""

    @property
    def prefix(self) -> str:
        """The prefix of the full names of this namespace's queues."""
        before = self.before
        return before if self.owner == ACCOUNT else f"{before}{self.owner}."

    @property
    def before(self) -> str:
        """The prefix of full names of queues created before accounts were separate."""
        return f"{self.region}." if self.region else ""

    def full(self, name: str) -> str:
        """Returns the full name of a queue of this namespace.

        >>> Namespace("111122223333").full("jobs"), Namespace(ACCOUNT).full("jobs")
        ('111122223333.jobs', 'jobs')
        """
        return self.prefix + name

    def local(self, full: str) -> str:
        """Returns a queue's name without the prefix of this namespace, from its full name."""
        prefix = self.prefix if full.startswith(self.prefix) else self.before
        return full.removeprefix(prefix)

    def own_name(self, queue: Queue) -> str:
        """Returns the name, without prefix, of a queue of any owner; empty if the queue is in another region."""
        name = self.local(queue.name)
        is_own = name.endswith(FIFO_SUFFIX) == queue.settings.is_fifo and "." not in name.removesuffix(FIFO_SUFFIX)
        return name if is_own and queue.name.startswith(self.before) else ""

    def has(self, queue: Queue, default: str) -> bool:
        """Whether a queue belongs to this account and region. `default`: the id of the default account."""
        return owner_of(queue.owner, default) == self.owner and bool(self.own_name(queue))
