"""A blocking conversation with one broker, for set-up and for checks: one request, one answer."""

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.wire.frames import LENGTH, read_response, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.schema import message_of

TIMEOUT_S: Final = 30.0
LATEST: Final = -1
TOPIC_EXISTS: Final = 36
UNKNOWN_TOPIC: Final = 3


class WrongAnswer(Exception):
    """A server answered with an error, or with something other than what was asked for."""


class BlockingClient:
    """One connection. Use it in a `with`."""

    def __init__(self, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def exchange(self, frame: bytes) -> bytes:
        """The answer to a whole request; both without and with their length, as load.c counts."""
        self._socket.sendall(frame)
        (size,) = LENGTH.unpack(self._read(4))
        return self._read(size)

    def _read(self, count: int) -> bytes:
        out = bytearray(count)
        view = memoryview(out)
        have = 0
        while have < count:
            got = self._socket.recv_into(view[have:])
            if not got:
                raise WrongAnswer("the server closed the connection")
            have += got
        return bytes(out)

    def call(self, request: Any, version: int) -> Any:
        answer = self.exchange(b"".join(request_frame(request, version, 7, "bench")))
        return read_response(ApiKey(message_of(type(request)).key), version, answer)[1]

    # -- what the harness asks for

    def versions(self) -> dict[int, range]:
        answer = self.call(ApiVersionsRequest(), 0)
        return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}

    def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        replicas: Sequence[Sequence[int]] = (),
        factor: int = 1,
    ) -> None:
        """`replicas`: of each partition, if it matters which; this broker leads all of them then."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(nodes))
                for number, nodes in enumerate(replicas)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        answer = self.call(CreateTopicsRequest(topics=[topic]), 5)
        if answer.topics[0].error_code:
            raise WrongAnswer(f"topic {name}: {answer.topics[0].error_message}")
        if replicas or factor == 1:
            self._wait_for_leaders(name, partitions)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        give_up_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < give_up_s:
            try:
                self.end_offsets(name, partitions)
                return
            except WrongAnswer:
                time.sleep(0.02)
        raise WrongAnswer(f"topic {name} has no leaders after {TIMEOUT_S:g} s")

    def delete_topic(self, name: str) -> None:
        answer = self.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
        if answer.responses[0].error_code:
            raise WrongAnswer(f"topic {name} cannot be deleted: error {answer.responses[0].error_code}")

    def end_offsets(self, name: str, partitions: int) -> list[int]:
        wanted = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in range(partitions)]
        topic = ListOffsetsTopic(name=name, partitions=wanted)
        answer = self.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        rows = answer.topics[0].partitions
        failed = [row.error_code for row in rows if row.error_code]
        if failed:
            raise WrongAnswer(f"topic {name}: ListOffsets error {failed[0]}")
        return [row.offset for row in rows]
