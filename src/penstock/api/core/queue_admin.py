"""Queue administration of a connection: create and list queues, and find the SQS endpoint."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

from penstock.api.core.cluster_lookup import ClusterLookup
from penstock.api.core.durations import Duration, whole_seconds
from penstock.api.core.queue_calls import visibility_s
from penstock.api.core.queue_wire import DELAY_S_MAX, explained
from penstock.api.core.settings import Settings
from penstock.api.errors import InvalidArgument, NotConnected
from penstock.client.errors import ConnectionFailed
from penstock.client.http import Endpoint
from penstock.client.queue_attributes import FIFO_SUFFIX, NewQueue
from penstock.client.sqs import WAIT_S_MAX, SqsClient
from penstock.foundation.clock import Clock

CENTURY_S = 3_155_760_000


def open_sqs(settings: Settings, lookup: ClusterLookup, clock: Clock, executor: Executor | None) -> SqsClient:
    """Returns an SQS client for the endpoint in the settings; if None, for the endpoints that brokers advertise."""

    async def find() -> list[Endpoint]:
        if settings.endpoint is not None:
            return [Endpoint.parse(settings.endpoint)]
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, lookup.endpoints)
        except NotConnected as error:
            raise ConnectionFailed(error.message) from error  # which is retried

    return SqsClient(find, keys=settings.keys, timeout_s=settings.timeout_s, clock=clock)


def new_queue(
    name: str,
    *,
    fifo: bool,
    delay: Duration | None,
    visibility: Duration | None,
    wait: Duration | None,
    retention: Duration | None,
    dead_letter: object,
    max_receives: int | None,
    from_topic: str | None,
    partitions: int | None,
    content_based_deduplication: bool,
) -> NewQueue:
    if max_receives is not None and dead_letter is None:
        raise InvalidArgument("max_receives= has no effect without dead_letter=; give both")

    def seconds(value: Duration | None, what: str, least: int, most: int) -> int | None:
        return None if value is None else whole_seconds(value, what, least=least, most=most)

    return NewQueue(
        fifo=fifo or name.endswith(FIFO_SUFFIX),
        delay_s=seconds(delay, "delay", 0, DELAY_S_MAX),
        visibility_s=None if visibility is None else visibility_s(visibility),
        wait_s=seconds(wait, "wait", 0, WAIT_S_MAX),
        retention_s=seconds(retention, "retention", 60, CENTURY_S),
        dead_letter=None if dead_letter is None else str(getattr(dead_letter, "name", dead_letter)),
        max_receives=max_receives,
        from_topic=from_topic,
        partitions=partitions,
        content_based_deduplication=content_based_deduplication,
    )


async def create_queue(sqs: SqsClient, name: str, queue: NewQueue, tags: Mapping[str, str] | None) -> None:
    with explained(name):
        await sqs.create_queue(name, queue.attributes(), tags or {})


async def list_queues(sqs: SqsClient, prefix: str) -> list[str]:
    """Returns the names of all queues that begin with `prefix`."""
    with explained(prefix):
        return await sqs.list_queues(prefix)
