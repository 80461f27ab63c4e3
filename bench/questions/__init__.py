"""The questions, in the order in which they are asked. Each file holds one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.lab import Lab
from bench.questions import (
    backlog,
    clients,
    cluster,
    floor,
    groups,
    kafka,
    latency,
    log_size,
    nats,
    shares,
    sqs,
    start,
    transactions,
)
from bench.report import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    slug: str
    title: str
    ask: Callable[[Lab], Sequence[Table]]
    needs_kafka: bool = False
    """It uses the warm Kafka, which is stopped when no other question needs it."""
    about: str = ""
    """What all questions of a kind are asked by, and their results are named after; else those are RESULTS.md."""


QUESTIONS: Final = (
    Question(slug="start", title=start.TITLE, ask=start.ask),
    Question(slug="log-size", title=log_size.TITLE, ask=log_size.ask),
    Question(slug="floor", title=floor.TITLE, ask=floor.ask),
    Question(slug="kafka", title=kafka.TITLE, ask=kafka.ask, needs_kafka=True),
    Question(slug="latency", title=latency.TITLE, ask=latency.ask, needs_kafka=True),
    Question(slug="clients", title=clients.TITLE, ask=clients.ask, needs_kafka=True),
    Question(slug="groups", title=groups.TITLE, ask=groups.ask, needs_kafka=True),
    Question(slug="transactions", title=transactions.TITLE, ask=transactions.ask, needs_kafka=True),
    Question(slug="cluster", title=cluster.TITLE, ask=cluster.ask),
    Question(slug="nats", title=nats.TITLE, ask=nats.ask),
    Question(slug="sqs", title=sqs.TITLE, ask=sqs.ask, about="queues"),
    Question(slug="shares", title=shares.TITLE, ask=shares.ask, about="queues"),
    Question(slug="backlog", title=backlog.TITLE, ask=backlog.ask, about="queues"),
)
