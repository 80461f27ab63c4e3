"""What the coordinator of groups is told, besides an Ask with a request of one of the group APIs."""

from dataclasses import dataclass

from penstock.foundation.decision import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """The image that the coordinator holds is a new one."""

    deleted: frozenset[str]
    """Names of topics that are gone, and maybe there again under other ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HungUp:
    """Someone who waits has closed its connection: nobody would hear the answer."""

    group_id: str
    ticket: Ticket
