"""Queue requests between brokers: encodes and decodes the Queue* messages and their errors."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.broker.peers import AskPeer
from penstock.broker.queues.message_appender import TakeSent
from penstock.broker.queues.messages import (
    Delivered,
    Headers,
    MessageAck,
    NewMessage,
    QueueUnavailable,
    Sent,
)
from penstock.broker.queues.partition import ReceiveRequest, TakeErrors, TakeMessages
from penstock.broker.queues.peek import PeekedMessage, PeekRequest, PeekResult, TakePeekResult
from penstock.client.errors import ConnectionFailed, ConnectionLost
from penstock.cluster.queues import NoSuchQueue, Queue
from penstock.foundation.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
    PenstockError,
    StorageError,
)
from penstock.queues.commands import AckType, Counts
from penstock.queues.errors import (
    AlreadyFinished,
    NeverReceived,
    NotHeld,
    NotInFlight,
    OverLimit,
    TooManyDeduplicationIds,
    TooManyGroups,
)
from penstock.replication.errors import NotEnoughReplicas
from penstock.wire.messages.queue_acknowledge import (
    QueueAcknowledgement,
    QueueAcknowledgeRequest,
    QueueAcknowledgeResponse,
)
from penstock.wire.messages.queue_control import QueueControlRequest, QueueControlResponse
from penstock.wire.messages.queue_deliver import QueueDeliverRequest, QueueDeliverResponse
from penstock.wire.messages.queue_peek import QueuePeekRequest, QueuePeekResponse
from penstock.wire.messages.queue_receive import QueueMessage, QueueReceiveRequest, QueueReceiveResponse
from penstock.wire.messages.queue_send import QueueHeader, QueueNewMessage, QueueSendRequest, QueueSendResponse

RETRIABLE_ERRORS: Final = (
    NotLeaderOrFollower,
    NotCoordinator,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotEnoughReplicas,
    StorageError,
)
"""Errors that mean that a request was not executed: it can be retried, possibly at another broker."""
_ERRORS: Final[dict[str, type[PenstockError]]] = {
    kind.__name__: kind
    for kind in (
        *RETRIABLE_ERRORS,
        AlreadyFinished,
        InvalidRecord,
        InvalidRequest,
        MessageTooLarge,
        NeverReceived,
        NoSuchQueue,
        NotHeld,
        NotInFlight,
        OverLimit,
        QueueUnavailable,
        TooManyDeduplicationIds,
        TooManyGroups,
    )
}


HELD_MS_MAX: Final = 10**12
"""Maximum visibility timeout or delay, in milliseconds, accepted from other brokers: far above the limits of SQS."""
_ACK_TYPES: Final = {
    ack_type.value: ack_type
    for ack_type in (AckType.DONE, AckType.RELEASE, AckType.REJECT, AckType.RENEW, AckType.UNDO)
}
"""Acknowledgement types allowed in QueueAcknowledge requests, by name on the wire."""


def error_name(error: PenstockError) -> str:
    """Returns the name of the error's nearest class that other brokers know (_ERRORS), or "QueueUnavailable"."""
    for kind in type(error).__mro__:
        if kind.__name__ in _ERRORS:
            return kind.__name__
    return QueueUnavailable.__name__


def error_from_name(name: str, message: str) -> PenstockError | None:
    if not name:
        return None
    return _ERRORS.get(name, QueueUnavailable)(message)


class PeerBrokers:
    """Sends queue requests to other brokers. A request that fails may have been executed."""

    def __init__(self, node_id: int, ask: AskPeer) -> None:
        self.node_id: Final = node_id
        self._ask = ask

    def send(self, node: int, queue: Queue, partition: int, messages: Sequence[NewMessage], then: TakeSent) -> None:
        request = QueueSendRequest(
            queue=queue.name,
            topic_id=queue.topic_id,
            partition=partition,
            messages=[
                QueueNewMessage(
                    key=each.key,
                    value=each.value,
                    headers=_encode_headers(each.headers),
                    deduplication_id=each.deduplication_id,
                )
                for each in messages
            ],
        )

        def read(response: QueueSendResponse) -> list[Sent] | PenstockError:
            return error_from_name(response.error, response.error_message) or [
                Sent(partition, each.offset, each.message_id, each.is_duplicate) for each in response.messages
            ]

        self._ask(node, request, _reader(then, read))

    def receive(
        self, node: int, queue: Queue, receive_request: ReceiveRequest, wait_ms: int, ticket: int, then: TakeMessages
    ) -> None:
        """Receives messages from broker `node`; calls `then` with the messages. If there are none, `node` starts a
        long poll of `wait_ms` and delivers its messages in another request, with this `ticket`."""
        request = QueueReceiveRequest(
            queue=queue.name,
            topic_id=queue.topic_id,
            holder=receive_request.holder,
            max_messages=receive_request.max_messages,
            visibility_ms=receive_request.visibility_ms,
            repeat=receive_request.repeat,
            wait_ms=wait_ms,
            node_id=self.node_id,
            ticket=ticket,
        )

        def read(response: QueueReceiveResponse) -> list[Delivered] | PenstockError:
            return error_from_name(response.error, response.error_message) or decode_messages(response.messages)

        self._ask(node, request, _reader(then, read))

    def deliver(
        self, node: int, ticket: int, messages: Sequence[Delivered], then: Callable[[bool | PenstockError], None]
    ) -> None:
        """Delivers messages to a long poll at another broker; calls `then` with whether the long poll took them."""

        def take(answer: QueueDeliverResponse | PenstockError) -> None:
            if not isinstance(answer, PenstockError):
                then(answer.is_taken)
            elif isinstance(answer, ConnectionFailed) and not isinstance(answer, ConnectionLost):
                then(False)  # the request was never sent
            else:
                then(answer)

        self._ask(node, QueueDeliverRequest(ticket=ticket, messages=encode_messages(messages)), take)

    def acknowledge(self, node: int, queue: Queue, items: Sequence[MessageAck], then: TakeErrors) -> None:
        request = QueueAcknowledgeRequest(
            queue=queue.name,
            topic_id=queue.topic_id,
            items=[
                QueueAcknowledgement(
                    partition=each.partition,
                    offset=each.offset,
                    holder=each.holder,
                    ack_type=each.ack_type.value,
                    delay_ms=each.delay_ms,
                )
                for each in items
            ],
        )

        def read(response: QueueAcknowledgeResponse) -> list[PenstockError | None]:
            return [error_from_name(each.error, each.error_message) for each in response.results]

        self._ask(node, request, _reader(then, read))

    def control(
        self,
        node: int,
        request: QueueControlRequest,
        then: Callable[[dict[int, Counts] | PenstockError], None],
    ) -> None:
        """Sends a control request to a broker; calls `then` with the message counts of each partition it leads."""

        def read(response: QueueControlResponse) -> dict[int, Counts] | PenstockError:
            return error_from_name(response.error, response.error_message) or {
                each.partition: Counts(each.available, each.in_flight, each.delayed, each.moving)
                for each in response.partitions
            }

        self._ask(node, request, _reader(then, read))

    def peek(self, node: int, queue: Queue, wanted: PeekRequest, then: TakePeekResult) -> None:
        """Peeks at the partitions that a broker leads; calls `then` with the messages, which are not received."""
        request = QueuePeekRequest(
            queue=queue.name,
            topic_id=queue.topic_id,
            max_messages=wanted.max_messages,
            max_bytes=wanted.max_bytes,
            shows_in_flight=wanted.shows_in_flight,
            shows_delayed=wanted.shows_delayed,
        )

        def read(response: QueuePeekResponse) -> PeekResult | PenstockError:
            messages = decode_messages(each.message for each in response.messages)
            found = [
                PeekedMessage(each.state, message) for each, message in zip(response.messages, messages, strict=True)
            ]
            return error_from_name(response.error, response.error_message) or PeekResult(found, response.has_more)

        self._ask(node, request, _reader(then, read))


def _reader(then: Callable[[Any], None], read: Callable[[Any], Any]) -> Callable[[Any], None]:
    def take(answer: Any) -> None:
        then(QueueUnavailable(str(answer)) if isinstance(answer, PenstockError) else read(answer))

    return take


# -- wire format


def _encode_headers(headers: Headers) -> list[QueueHeader]:
    return [QueueHeader(name=name, value=value) for name, value in headers]


def _decode_headers(headers: Iterable[QueueHeader]) -> Headers:
    return tuple((each.name, None if each.value is None else bytes(each.value)) for each in headers)


def decode_new_messages(messages: Iterable[QueueNewMessage]) -> list[NewMessage]:
    """Returns the decoded messages as copies, because the buffer of the request is reused."""
    return [
        NewMessage(
            bytes(each.value),
            None if each.key is None else bytes(each.key),
            _decode_headers(each.headers),
            each.deduplication_id,
        )
        for each in messages
    ]


def encode_messages(messages: Iterable[Delivered]) -> list[QueueMessage]:
    return [
        QueueMessage(
            partition=each.partition,
            offset=each.offset,
            holder=each.holder,
            message_id=each.message_id,
            count=each.count,
            first_received_ms=each.first_received_ms,
            timestamp_ms=each.timestamp_ms,
            key=each.key,
            value=each.value,
            headers=_encode_headers(each.headers),
            is_repeat=each.is_repeat,
        )
        for each in messages
    ]


def decode_messages(messages: Iterable[QueueMessage]) -> list[Delivered]:
    return [
        Delivered(
            each.partition,
            each.offset,
            each.holder,
            each.message_id,
            each.count,
            each.first_received_ms,
            each.timestamp_ms,
            None if each.key is None else bytes(each.key),
            bytes(each.value),
            _decode_headers(each.headers),
            each.is_repeat,
        )
        for each in messages
    ]


def decode_acks(items: Iterable[QueueAcknowledgement]) -> list[MessageAck]:
    """Returns the decoded acknowledgements. Raises InvalidRequest."""
    found = []
    for each in items:
        if each.ack_type not in _ACK_TYPES or each.offset < 0 or not 0 <= each.delay_ms <= HELD_MS_MAX:
            raise InvalidRequest(
                f"invalid acknowledgement: type {each.ack_type!r}, offset {each.offset}, delay {each.delay_ms} ms"
            )
        found.append(MessageAck(each.partition, each.offset, each.holder, _ACK_TYPES[each.ack_type], each.delay_ms))
    return found
