"""Metadata requests that would create topics: a bounded number each, and none for a client that is gone."""

from penstock.foundation.codes import ErrorCode
from penstock.wire.frames import request_frame
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient
from tests.clients.waiting import wait_until

from .probe import Probe

BOUND = 100
CLIENTS = 20


def _asking_for(names: list[str]) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True)


def _topics(raw: RawClient, prefix: str) -> int:
    listed = raw.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9).topics
    return sum(topic.name.startswith(prefix) for topic in listed)


def test_one_request_creates_a_bounded_number_of_topics(target: BrokerProcess, probe: Probe) -> None:
    names = [f"made-{number}" for number in range(20_000)]
    with probe.watch("auto-creation-of-20,000-names"), RawClient(target.address) as raw:
        raw.socket.settimeout(90.0)
        codes = [topic.error_code for topic in raw.ask(_asking_for(names), 9).topics]
        assert _topics(raw, "made-") == BOUND
    assert codes == [0] * BOUND + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (len(names) - BOUND)


def test_topics_are_not_created_for_a_client_that_is_gone(target: BrokerProcess, probe: Probe) -> None:
    """When the broker notices that a client is gone, at most one topic of its request is still being created."""
    with probe.watch("auto-creation-for-clients-that-hang-up"), RawClient(target.address) as raw:
        for client in range(CLIENTS):
            request = _asking_for([f"gone-{client}-{number}" for number in range(BOUND)])
            with RawClient(target.address) as gone:
                gone.socket.sendall(b"".join(request_frame(request, 9, 1, "gone")))
        # Two are left: this one, and the probe's.
        wait_until(lambda: target.metric("penstock_connections") <= 2, "the broker notices that they are gone")
        noticed = _topics(raw, "gone-")
        for number in range(CLIENTS):  # topics of requests that go on would be created between these
            assert raw.ask(_asking_for([f"later-{number}"]), 9).topics[0].error_code == ErrorCode.NONE
        assert _topics(raw, "gone-") <= noticed + CLIENTS
    assert noticed < CLIENTS * BOUND
