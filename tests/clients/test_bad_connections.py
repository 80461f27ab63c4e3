"""Broken, hostile, slow and lost peers: the broker stays up, stays small, and serves the others."""

import contextlib
import random
import resource
import socket
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.codec import decode
from penstock.wire.frames import LENGTH, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Closed,
    RawClient,
    batch_of,
    fetch_request,
    produce_request,
    records_of,
)
from .waiting import wait_until

KIB = 1 << 10
MIB = 1 << 20
SOON_S = 30.0
HELLO = b"".join(request_frame(ApiVersionsRequest(), 0, 1, "hello"))
"""The smallest whole request."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that only these tests use: its memory is measured."""
    process = BrokerProcess(tmp_path_factory.mktemp("target"), by_exec=True).start()
    ConfluentDriver(process.kafka).create_topic("bystander")
    yield process
    process.finish()


@pytest.fixture(autouse=True)
def bystander(target: BrokerProcess) -> Iterator[None]:
    """Checks that other clients are served during and after a test, and over HTTP."""
    with RawClient(target.address) as meanwhile:
        offset = meanwhile.produce("bystander", batch_of([b"before"])).base_offset
        yield
        assert meanwhile.produce("bystander", batch_of([b"after"])).base_offset == offset + 1
    with RawClient(target.address) as afterwards:
        found = records_of(afterwards.fetch("bystander", offset).records)
        assert [record.value for record in found] == [b"before", b"after"]
    with urllib.request.urlopen(f"http://{target.http}/readyz", timeout=60) as answer:
        assert answer.read() == b"ready\n"


def connections(broker: BrokerProcess) -> float:
    """How many there are, without the bystander's."""
    return broker.metric("penstock_connections") - 1


def frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    """Any request, with a header of the old kind."""
    header = struct.pack(">hhih", api_key, version, 7, -1)
    return LENGTH.pack(len(header) + len(body)) + header + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(LENGTH.pack(2**31 - 1), id="a-length-of-2-gib"),
        pytest.param(LENGTH.pack(101 * MIB), id="a-length-over-the-limit"),
        pytest.param(LENGTH.pack(-1), id="a-negative-length"),
        pytest.param(LENGTH.pack(-(2**31)), id="the-most-negative-length"),
        pytest.param(LENGTH.pack(0), id="no-length"),
        pytest.param(LENGTH.pack(9) + bytes(9), id="shorter-than-a-header"),
        pytest.param(bytes.fromhex("16030100c8010000c40303") + bytes(200), id="tls"),
        pytest.param(frame(999, 0), id="an-unknown-api"),
        pytest.param(frame(-1, 0), id="a-negative-api"),
        pytest.param(frame(0, 99, bytes(20)), id="a-version-of-produce-from-the-future"),
        pytest.param(frame(0, 2, bytes(20)), id="a-version-of-produce-from-the-past"),
        pytest.param(frame(0, 9, b"\xff" * 20), id="produce-of-nonsense"),
        pytest.param(frame(3, 1, LENGTH.pack(2**31 - 1)), id="an-array-of-2-billion"),
        pytest.param(frame(3, 1, LENGTH.pack(1) + struct.pack(">h", 30000)), id="a-string-beyond-the-end"),
        pytest.param(frame(1, 12, b"\x00" * 3), id="a-fetch-that-is-cut-short"),
        pytest.param(LENGTH.pack(20) + struct.pack(">hhih", 18, 0, 1, 5000) + bytes(10), id="a-client-id-too-long"),
    ],
)
def test_invalid_bytes_close_their_connection(target: BrokerProcess, data: bytes) -> None:
    before_kib = target.rss_anon_kib()
    with RawClient(target.address) as raw:
        raw.socket.sendall(data)
        assert raw.is_closed_by_the_broker()
    assert target.rss_anon_kib() - before_kib < 8 * KIB


def test_garbage_of_any_kind_is_survived(target: BrokerProcess, rng: random.Random) -> None:
    for _ in range(100):
        with RawClient(target.address) as raw:
            body = rng.randbytes(rng.randrange(10, 200))
            # Half of them look like a request for some API, which gets them further.
            known = struct.pack(">hhih", rng.choice([0, 1, 2, 3, 18, 19, 20, 22, 32, 44]), rng.randrange(6), 1, -1)
            data = LENGTH.pack(len(body)) + (known + body)[: len(body)] if rng.random() < 0.5 else body
            with contextlib.suppress(ConnectionError):
                raw.socket.sendall(data)
                raw.socket.shutdown(socket.SHUT_WR)
            # Answered or not: the connection ends, since this side of it has.
            with contextlib.suppress(Closed):
                while True:
                    raw.receive_frame()


def test_nonsense_is_logged_once_a_connection(own_broker: Callable[..., BrokerProcess]) -> None:
    """At a broker of its own: of one kind of line only so many go into the log in a while."""
    broker = own_broker()
    with RawClient(broker.address) as raw:
        raw.socket.sendall(frame(0, 9, b"\xff" * 20) * 5000)
        assert raw.is_closed_by_the_broker()
    assert broker.log.count("connection_closed") == 1


def test_a_request_may_arrive_byte_by_byte(target: BrokerProcess) -> None:
    with RawClient(target.address) as raw:
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(len(HELLO)):
            raw.socket.sendall(HELLO[number : number + 1])
        assert raw.receive_frame()[:4] == LENGTH.pack(1)


@pytest.mark.parametrize("sent", [1, 3, 4, 6, 11, 12, len(HELLO) - 1])
def test_a_peer_that_goes_in_the_middle_of_a_request_is_forgotten(target: BrokerProcess, sent: int) -> None:
    with RawClient(target.address) as raw:
        raw.socket.sendall(HELLO + HELLO[:sent])
        raw.receive_frame()
        assert connections(target) >= 1
    wait_until(lambda: connections(target) == 0, "the connection is forgotten")


def test_a_peer_that_goes_in_the_middle_of_a_large_request_is_forgotten(target: BrokerProcess) -> None:
    with RawClient(target.address) as raw:
        raw.socket.sendall(LENGTH.pack(50 * MIB) + frame(0, 9)[4:] + bytes(5 * MIB))
    wait_until(lambda: connections(target) == 0, "the connection is forgotten")


# -- versions


def test_a_newer_client_gets_the_supported_versions(target: BrokerProcess) -> None:
    """ApiVersions in a version that is not served is answered in version 0, and the connection goes on (KIP-511)."""
    with RawClient(target.address) as raw:
        raw.socket.sendall(frame(18, 99, b"\x00any bytes"))
        answer = raw.receive_frame()
        assert answer[:4] == LENGTH.pack(7)
        response = decode(ApiVersionsResponse, 0, answer, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert {18, 0, 1, 3} <= {api.api_key for api in response.api_keys}
        assert raw.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code == 0


def test_unstable_versions_of_kafka_are_not_advertised(target: BrokerProcess) -> None:
    with RawClient(target.address) as raw:
        advertised = {api.api_key: api.max_version for api in raw.ask(ApiVersionsRequest(), 0).api_keys}
    assert advertised[ApiKey.INIT_PRODUCER_ID] == 5


def test_a_request_of_more_than_two_mebibytes_is_read_only_if_it_is_produce(target: BrokerProcess) -> None:
    too_large = r'penstock_refused_total\{reason="frame_size"\}'
    before = target.metric(too_large)
    names = MetadataRequestTopic(name="x" * 30_000)
    with RawClient(target.address) as raw:
        with contextlib.suppress(ConnectionError):
            raw.send(MetadataRequest(topics=[names] * 80, allow_auto_topic_creation=False), 12)
        assert raw.is_closed_by_the_broker()
    assert target.metric(too_large) == before + 1


def test_every_version_that_is_advertised_is_served(target: BrokerProcess) -> None:
    """But for the oldest versions of Produce, which are advertised because librdkafka wants to see them."""
    refused = r'penstock_refused_total\{reason="unsupported"\}'
    before = target.metric(refused)
    with RawClient(target.address) as raw:
        advertised = raw.ask(ApiVersionsRequest(), 0).api_keys
    for api in advertised:
        for version in range(3 if api.api_key == ApiKey.PRODUCE else api.min_version, api.max_version + 1):
            with RawClient(target.address) as raw:
                # A body that is not there is answered or malformed; in a version that is not served it is refused.
                raw.socket.sendall(frame(api.api_key, version))
                raw.socket.shutdown(socket.SHUT_WR)
                with contextlib.suppress(Closed):
                    raw.receive_frame()
    assert target.metric(refused) == before
    with RawClient(target.address) as raw:
        raw.socket.sendall(frame(ApiKey.PRODUCE, 2))
        assert raw.is_closed_by_the_broker()
    assert target.metric(refused) == before + 1


# -- many requests at once


def test_requests_are_answered_in_their_order_though_some_have_to_wait(target: BrokerProcess) -> None:
    ConfluentDriver(target.kafka).create_topic("in-order")
    with RawClient(target.address) as raw:
        creation = CreatableTopic(name="made", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for number in range(20):
            raw.send(fetch_request("in-order", {0: number}, max_wait_ms=50), FETCH_VERSION)
            raw.send(ApiVersionsRequest(), 0)
            raw.send(CreateTopicsRequest(topics=[creation], timeout_ms=1000, validate_only=False), 5)
            raw.send(MetadataRequest(topics=None), 9)
            raw.send(produce_request("in-order", batch_of([b"%d" % number])), PRODUCE_VERSION)
        for number in range(20):
            assert raw.receive().responses[0].partitions[0].high_watermark >= number
            assert raw.receive().error_code == 0
            made = raw.receive().topics[0]
            assert made.error_code == (ErrorCode.TOPIC_ALREADY_EXISTS if number else ErrorCode.NONE)
            assert raw.receive().topics
            assert raw.receive().responses[0].partition_responses[0].base_offset == number


def test_thousands_of_requests_may_be_under_way(target: BrokerProcess) -> None:
    count = 3000
    ConfluentDriver(target.kafka).create_topic("pipelined")
    with RawClient(target.address) as raw:
        for number in range(count):
            raw.send(produce_request("pipelined", batch_of([b"%d" % number])), PRODUCE_VERSION)
        offsets = [raw.receive().responses[0].partition_responses[0].base_offset for _ in range(count)]
        assert offsets == list(range(count))
        values = [record.value for _, records in raw.batches("pipelined") for record in records]
        assert values == [b"%d" % number for number in range(count)]


def test_clients_that_go_while_their_fetches_wait_are_forgotten(target: BrokerProcess) -> None:
    ConfluentDriver(target.kafka).create_topic("quiet")
    clients = [RawClient(target.address) for _ in range(50)]
    for client in clients:
        client.send(fetch_request("quiet", {0: 0}, max_wait_ms=60_000), FETCH_VERSION)
        client.send(ApiVersionsRequest(), 0)
    wait_until(lambda: connections(target) >= 50, "all are connected")
    for client in clients:
        client.socket.close()
    wait_until(lambda: connections(target) == 0, "all are forgotten")
    with RawClient(target.address) as raw:
        assert raw.produce("quiet", batch_of([b"not waited for"])).error_code == 0


# -- memory


def test_two_thousand_idle_connections_cost_little(target: BrokerProcess) -> None:
    count = 2000
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + 500:
        pytest.skip(f"this process may open {most} files only: raise ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    before_kib = target.rss_anon_kib()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(target.address)) for _ in range(count)]
        for client in clients:
            client.send(ApiVersionsRequest(), 0)
        for client in clients:
            assert client.receive().error_code == 0
        assert connections(target) >= count
        assert target.rss_anon_kib() - before_kib < 10 * count
        began_s = time.monotonic()
        assert clients[0].ask(ApiVersionsRequest(), 0).error_code == 0
        assert time.monotonic() - began_s < SOON_S
    wait_until(lambda: connections(target) == 0, "all are forgotten")


def test_announcing_large_requests_costs_nothing(target: BrokerProcess) -> None:
    before_kib = target.rss_anon_kib()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(target.address)) for _ in range(100)]
        for client in clients:
            client.socket.sendall(LENGTH.pack(100 * MIB) + frame(0, 9)[4:])
        wait_until(lambda: connections(target) >= 100, "all are connected")
        assert target.rss_anon_peak_kib(0.3) - before_kib < 64 * KIB
    wait_until(lambda: connections(target) == 0, "all are forgotten")


def test_large_requests_wait_for_room_and_then_go_through(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker({"queued.max.request.bytes": 4 * MIB})
    ConfluentDriver(broker.kafka).create_topic("large", partitions=8, configs={"max.message.bytes": str(10 * MIB)})
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.address)) for _ in range(8)]
        frames = []
        for number, _ in enumerate(clients):
            request = produce_request("large", batch_of([b"%d" % number * (3 * MIB)]), number)
            frames.append(b"".join(request_frame(request, PRODUCE_VERSION, 1, "large")))
        # One stops half-way and keeps its room until it goes on; one goes away while it waits for room.
        clients[0].socket.sendall(frames[0][: 2 * MIB])
        gone = stack.enter_context(RawClient(broker.address))
        gone.socket.sendall(LENGTH.pack(3 * MIB) + bytes(KIB))
        gone.socket.close()
        pairs = zip(clients[1:], frames[1:], strict=True)
        threads = [Thread(target=client.socket.sendall, args=(data,)) for client, data in pairs]
        for thread in threads:
            thread.start()
        clients[0].socket.sendall(frames[0][2 * MIB :])
        for number, client in enumerate(clients):
            client.expect(ApiKey.PRODUCE, PRODUCE_VERSION, 1)
            assert client.receive().responses[0].partition_responses[0].error_code == 0
            (record,) = records_of(client.fetch("large", 0, number).records)
            assert record.value == b"%d" % number * (3 * MIB)
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("storage", ["disk", "memory"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_slow_reader_of_large_answers_costs_little(target: BrokerProcess, storage: str, partitions: int) -> None:
    """It asks for gigabytes and reads nothing of them. (One partition and two take different ways in the broker.)"""
    topic = f"slow-{storage}-{partitions}"
    ConfluentDriver(target.kafka).create_topic(topic, partitions, {"storage": storage})
    with RawClient(target.address) as raw:
        for partition in range(partitions):
            for _ in range(10):
                raw.produce(topic, batch_of([bytes(MIB - 200)]), partition)
    before_kib = target.rss_anon_kib()
    with RawClient(target.address, receive_buffer_bytes=4096) as slow:
        for _ in range(300):
            slow.send(fetch_request(topic, dict.fromkeys(range(partitions), 0)), FETCH_VERSION)
        assert target.rss_anon_peak_kib(0.5) - before_kib < 40 * KIB
        with RawClient(target.address) as other:
            began_s = time.monotonic()
            assert other.produce(topic, batch_of([b"meanwhile"])).error_code == 0
            assert time.monotonic() - began_s < SOON_S
        answer = slow.receive()
        assert len(answer.responses[0].partitions[0].records) > 7 * MIB


def test_a_reader_of_thousands_of_small_answers_costs_little(target: BrokerProcess) -> None:
    ConfluentDriver(target.kafka).create_topic("many-small", 2)
    with RawClient(target.address) as raw:
        raw.produce("many-small", batch_of([bytes(50 * KIB)]))
    before_kib = target.rss_anon_kib()
    with RawClient(target.address, receive_buffer_bytes=4096) as slow:
        request = fetch_request("many-small", {0: 0, 1: 0}, session_epoch=-1)
        slow.socket.sendall(b"".join(request_frame(request, FETCH_VERSION, 1, "slow")) * 8000)
        assert target.rss_anon_peak_kib(0.5) - before_kib < 40 * KIB


def test_connections_beyond_the_limit_are_turned_away(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker({"max.connections": 3})
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.address)) for _ in range(3)]
        assert all(client.ask(ApiVersionsRequest(), 0).error_code == 0 for client in clients)
        with RawClient(broker.address) as surplus:
            assert surplus.is_closed_by_the_broker()
        clients[0].socket.close()
        wait_until(lambda: broker.metric("penstock_connections") == 2, "one is gone")
        with RawClient(broker.address) as next_one:
            assert next_one.ask(ApiVersionsRequest(), 0).error_code == 0
