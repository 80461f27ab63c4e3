import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.registry import APIS, load_handlers
from penstock.client.address import Address, parse_bootstrap
from penstock.client.connection import RECEIVE_BYTES, Connection, ConnectionSettings, open_connection
from penstock.client.consumer import FETCH_BY_NAME
from penstock.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut, UnsupportedByBroker
from penstock.wire.codec import encode_bytes
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_records import DeleteRecordsRequest
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from penstock.wire.messages.produce import ProduceRequest
from tests.ports import free_port

from .nodes import LOCAL, running_node

METADATA = MetadataRequest(topics=[])
KEYS = {MetadataRequest: ApiKey.METADATA, FetchRequest: ApiKey.FETCH, ProduceRequest: ApiKey.PRODUCE}
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(bootstrap: str, settings: ConnectionSettings | None = None) -> AsyncIterator[Connection]:
    connection = await open_connection(parse_bootstrap(bootstrap)[0], settings or ConnectionSettings())
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[Address]:
    """Something that listens and is no broker, for one connection."""
    is_done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handler(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        is_done.set()

    server = await asyncio.start_server(serve, LOCAL, 0)
    try:
        yield Address(LOCAL, server.sockets[0].getsockname()[1])
        await is_done.wait()
    finally:
        server.close()


async def test_the_highest_version_that_both_sides_have_is_used(bootstrap: str) -> None:
    async with connected(bootstrap) as connection:
        for request, key in KEYS.items():
            assert connection.version_of(request) == APIS[key].versions[-1]
        assert connection.version_of(FetchRequest, version_max=12) == 12


async def test_an_older_broker_is_asked_in_the_oldest_words_and_then_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_handlers()
    for key, newest in ((ApiKey.API_VERSIONS, 2), (ApiKey.METADATA, 7)):
        api = APIS[key]
        monkeypatch.setitem(APIS, key, replace(api, versions=range(api.versions[0], newest + 1)))
    async with running_node(tmp_path) as node, connected(str(node.listen)) as connection:
        assert connection.versions[ApiKey.API_VERSIONS] == range(3)
        assert connection.version_of(MetadataRequest) == 7
        response: MetadataResponse = await connection.request(METADATA)
        assert [broker.port for broker in response.brokers] == [node.listen.port]


async def test_an_api_that_the_broker_lacks_is_named_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_handlers()
    monkeypatch.delitem(APIS, ApiKey.DELETE_RECORDS)
    async with running_node(tmp_path) as node, connected(str(node.listen)) as connection:
        with pytest.raises(UnsupportedByBroker, match=r"DELETE_RECORDS needs version 0 to 2, .* has none"):
            await connection.request(DeleteRecordsRequest(topics=[], timeout_ms=0))
        assert connection.in_flight == 0
        assert connection.is_open


async def test_many_requests_are_under_way_at_a_time_but_no_more_than_allowed(bootstrap: str) -> None:
    async with connected(bootstrap, ConnectionSettings(in_flight_max=5)) as connection:
        most = 0

        async def ask() -> int:
            nonlocal most
            pending = asyncio.ensure_future(connection.request(METADATA))
            await asyncio.sleep(0)
            most = max(most, connection.in_flight)
            return len((await pending).brokers)

        assert await asyncio.gather(*(ask() for _ in range(100))) == [1] * 100
        assert most == 5


async def test_an_answer_larger_than_the_receive_buffer_is_read_whole(bootstrap: str, topic: str) -> None:
    async with connected(bootstrap) as connection:
        await connection.request(_create(topic, partitions=1))
        resource = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource] * 100, include_documentation=True)
        response: DescribeConfigsResponse = await connection.request(request)
        assert len(encode_bytes(response, 4)) > 2 * RECEIVE_BYTES
        assert all(result == response.results[0] for result in response.results)
        assert len(response.results) == 100


def _create(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=[CreatableTopicConfig(name="storage", value="memory")],  # no need for thousands of folders
    )
    return CreateTopicsRequest(topics=[topic])


def _long_poll(topic: str, max_wait_ms: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


async def test_a_cancelled_request_does_not_disturb_the_next(bootstrap: str, topic: str) -> None:
    async with connected(bootstrap) as connection:
        await connection.request(_create(topic, partitions=1))
        waiting = asyncio.create_task(connection.request(_long_poll(topic, 100), version_max=FETCH_BY_NAME))
        await asyncio.sleep(0)
        assert connection.in_flight == 1
        waiting.cancel()
        response: MetadataResponse = await connection.request(METADATA)
        assert len(response.brokers) == 1
        assert waiting.cancelled()


async def test_a_broker_that_is_not_there_is_named_with_what_to_do() -> None:
    address = Address(LOCAL, free_port())
    with pytest.raises(ConnectionFailed) as caught:
        await open_connection(address, ConnectionSettings())
    assert str(caught.value) == (
        f"cannot reach {address}: connection refused; is `penstock serve` running? "
        "Set --bootstrap or PENSTOCK_BOOTSTRAP"
    )


async def test_a_peer_that_never_answers_is_given_up_after_the_timeout() -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()

    async with listening(swallow) as address:
        with pytest.raises(ConnectionFailed, match=r"no answer within 0\.1 s"):
            await open_connection(address, ConnectionSettings(connect_timeout_s=0.1))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (b"220 mail.example.org\r\n", "does not speak the Kafka protocol; is that a Kafka listener"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "sent HTTP: give the port of Kafka clients"),
    ],
)
async def test_a_peer_that_does_not_speak_kafka_is_found_out(words: bytes, said: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        with contextlib.suppress(ConnectionError):
            await reader.read()

    async with listening(speak) as address:
        with pytest.raises(ConnectionFailed, match=said):
            await open_connection(address, ConnectionSettings())


async def test_a_late_answer_closes_the_connection_since_others_would_wait_behind_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, connected(str(node.listen)) as connection:
        await connection.request(_create("quiet", partitions=1))
        poll = _long_poll("quiet", 60_000)
        first = asyncio.create_task(connection.request(poll, version_max=FETCH_BY_NAME, timeout_s=0.1))
        second = asyncio.create_task(connection.request(METADATA))
        with pytest.raises(RequestTimedOut, match=r"did not answer FETCH within 0\.1 s"):
            await first
        with pytest.raises(ConnectionLost):
            await second
        assert not connection.is_open
        with pytest.raises(ConnectionFailed, match="is closed; connect again"):
            await connection.request(METADATA)


async def test_requests_in_flight_when_the_broker_dies_raise_that_their_outcome_is_unknown(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        connection = await open_connection(parse_bootstrap(str(node.listen))[0], ConnectionSettings())
        await connection.request(_create("quiet", partitions=1))
        waiting = asyncio.create_task(connection.request(_long_poll("quiet", 60_000), version_max=FETCH_BY_NAME))
        await asyncio.sleep(0)
        assert connection.in_flight == 1
    with pytest.raises(ConnectionLost, match="requests in flight may have been carried out"):
        await waiting
    await connection.close()
