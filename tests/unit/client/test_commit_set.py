"""CommitSet through our own client: against a real broker, with lost responses and moving coordinators."""

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.client.admin import Admin
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.commit_set import (
    Broken,
    Outcome,
    Participant,
    SetBroken,
    abort_open,
    close_query,
    commit_set,
    forget_query,
    transactional_id,
)
from penstock.client.connection import ConnectionSettings
from penstock.client.errors import ConnectionFailed, ServerError
from penstock.client.transactional import transaction_states
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.ids import TopicPartition
from penstock.foundation.spark_ids import TASK_ID_BYTES_MAX
from penstock.node import Address
from penstock.wire.keys import ApiKey
from penstock.wire.messages.commit_set import PARTICIPANTS_MAX
from tests.ports import free_port
from tests.spark_tasks import ended, initialise, produce, write

from .nodes import LOCAL, ForgetfulProxy, running_node

PATIENT = ClientSettings(retry_for_s=60.0, backoff_first_s=0.01, backoff_max_s=0.05)


@asynccontextmanager
async def cluster(bootstrap: str, topic: str) -> AsyncIterator[KafkaClient]:
    async with KafkaClient(bootstrap, settings=PATIENT) as client:
        await Admin(client).create(topic)
        yield client


def ids(query: str, count: int, attempt: str = "0.0") -> list[str]:
    return [transactional_id(query, number, attempt) for number in range(count)]


async def test_a_batch_is_committed_and_what_else_is_open_is_aborted(bootstrap: str, topic: str) -> None:
    async with cluster(bootstrap, topic) as client:
        names, (left_open,) = ids(topic, 3), ids(topic, 1, "0.1")
        participants = [await write(client, topic, name) for name in names]
        await write(client, topic, left_open)
        done = await commit_set(client, query=topic, batch_id=0, participants=participants)
        assert done is Outcome.COMMITTED
        assert [await ended(client, name) for name in names] == ["CompleteCommit"] * 3
        assert await ended(client, left_open) == "CompleteAbort"
        assert await commit_set(client, query=topic, batch_id=0, participants=participants) is Outcome.COMMITTED


async def test_a_batch_that_was_decided_is_not_committed_again(bootstrap: str, topic: str) -> None:
    async with cluster(bootstrap, topic) as client:
        (name,) = ids(topic, 1)
        await commit_set(client, query=topic, batch_id=4, participants=[await write(client, topic, name)])
        for batch_id in (4, 3):
            repeated = [await write(client, topic, name)]
            done = await commit_set(client, query=topic, batch_id=batch_id, participants=repeated)
            assert done is Outcome.DECIDED_BEFORE
            assert await ended(client, name) == "CompleteAbort"
        assert await commit_set(client, query=topic, batch_id=5, participants=[]) is Outcome.COMMITTED


async def test_a_broken_set_names_the_failed_participant(bootstrap: str, topic: str) -> None:
    async with cluster(bootstrap, topic) as client:
        names = ids(topic, 2)
        participants = [await write(client, topic, name) for name in names]
        participants[1] = participants[1]._replace(epoch=participants[1].epoch + 1)
        with pytest.raises(SetBroken, match="1 of its 2 transactions are not open") as caught:
            await commit_set(client, query=topic, batch_id=0, participants=participants)
        (broken,) = caught.value.broken
        assert (broken.transactional_id, broken.code) == (names[1], ErrorCode.PRODUCER_FENCED)
        assert [await ended(client, name) for name in names] == ["CompleteAbort"] * 2
        again: SetBroken = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.broken) == (str(caught.value), (Broken(*broken),))


async def test_open_transactions_of_a_query_are_aborted_and_its_decisions_forgotten(
    bootstrap: str, topic: str
) -> None:
    async with cluster(bootstrap, topic) as client:
        names = ids(topic, 3)
        for name in names:
            await write(client, topic, name)
        assert await abort_open(client, query=topic) == 3
        assert await abort_open(client, query=topic) == 0
        assert [await ended(client, name) for name in names] == ["CompleteAbort"] * 3
        for _ in range(2):
            participants = [await write(client, topic, name) for name in names]
            done = await commit_set(client, query=topic, batch_id=0, participants=participants)
            assert done is Outcome.COMMITTED
            await forget_query(client, query=topic)
        await forget_query(client, query=topic)


async def test_a_task_of_a_query_that_is_closed_begins_nothing(bootstrap: str, topic: str) -> None:
    async with cluster(bootstrap, topic) as client:
        early, late = ids(topic, 2)
        producer = await initialise(client, early)
        assert await close_query(client, query=topic) == -1
        with pytest.raises(ServerError) as caught:
            await produce(client, TopicPartition(topic, 0), producer, b"late")
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH, "as for a fenced producer"
        with pytest.raises(ServerError) as caught:
            await initialise(client, late)
        assert caught.value.code is ErrorCode.PRODUCER_FENCED
        assert await transaction_states(client, [early, late]) == {early: "Empty"}


async def test_invalid_requests_are_refused_at_once(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        with pytest.raises(ServerError, match="is invalid; expected 0"):
            await commit_set(client, query=topic, batch_id=-1, participants=[])
        with pytest.raises(ServerError, match="is not a query name"):
            await abort_open(client, query="a/b")
        many = [Participant(f"spark/{topic}/{number}/0.0", 1, 0) for number in range(PARTICIPANTS_MAX + 1)]
        with pytest.raises(ServerError, match="fewer tasks") as caught:
            await commit_set(client, query=topic, batch_id=0, participants=many)
        assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
        with pytest.raises(InvalidRequest):
            transactional_id("a/b", 0, "0.0")


async def test_as_many_as_are_allowed_fit_into_one_request(bootstrap: str, topic: str) -> None:
    query = "q" * 100
    longest = TASK_ID_BYTES_MAX - len(f"spark/{query}/00000/")
    many = [
        Participant(transactional_id(query, number, "x" * longest), 1, 0)
        for number in range(10_000, 10_000 + PARTICIPANTS_MAX)
    ]
    assert {len(one.transactional_id) for one in many} == {TASK_ID_BYTES_MAX}
    async with KafkaClient(bootstrap) as client:
        with pytest.raises(SetBroken, match=f"{PARTICIPANTS_MAX} of its {PARTICIPANTS_MAX}"):
            await commit_set(client, query=query, batch_id=0, participants=many)


async def test_an_answer_that_was_lost_is_asked_for_again(tmp_path: Path) -> None:
    async with ForgetfulProxy(ApiKey.COMMIT_SET) as proxy:
        address = Address(host=LOCAL, port=proxy.port)
        async with running_node(tmp_path, advertise=address) as node:
            proxy.target = node.listen.port
            async with cluster(str(address), "orders") as client:
                participants = [await write(client, "orders", name) for name in ids("q", 3)]
                proxy.lose = 2
                done = await commit_set(client, query="q", batch_id=0, participants=participants)
                assert (done, proxy.lost) == (Outcome.COMMITTED, 2)
                assert {await ended(client, name) for name in ids("q", 3)} == {"CompleteCommit"}
                proxy.lose = 1
                await write(client, "orders", ids("q", 1)[0])
                assert await abort_open(client, query="q") == 0, "the first request has done it"
                assert await ended(client, ids("q", 1)[0]) == "CompleteAbort"


async def test_a_coordinator_that_is_away_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    async with running_node(tmp_path, port=port) as node, cluster(f"{LOCAL}:{port}", "orders") as client:
        participants = [await write(client, "orders", name) for name in ids("q", 3)]
        await node.stop()
        waiting = asyncio.create_task(commit_set(client, query="q", batch_id=0, participants=participants))
        await asyncio.sleep(0)
        async with running_node(tmp_path, port=port):
            assert await waiting is Outcome.COMMITTED
            assert {await ended(client, name) for name in ids("q", 3)} == {"CompleteCommit"}


async def test_time_is_up_some_day(tmp_path: Path) -> None:
    port = free_port()
    settings = ClientSettings(
        retry_for_s=0.3,
        backoff_first_s=0.01,
        backoff_max_s=0.05,
        connection=ConnectionSettings(connect_timeout_s=1.0),
    )
    async with running_node(tmp_path, port=port) as node, KafkaClient(f"{LOCAL}:{port}", settings=settings) as client:
        await commit_set(client, query="q", batch_id=0, participants=[])
        await node.stop()
        with pytest.raises(ConnectionFailed):
            await commit_set(client, query="q", batch_id=1, participants=[])
