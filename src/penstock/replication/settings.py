"""The settings of replication, by Kafka's names."""

from typing import Final

from penstock.foundation.settings import Kind, number

REPLICATION_SETTINGS: Final = (
    number("replica.lag.time.max.ms", 30_000, 1, "How long a follower may lag before it is out of sync.", Kind.LONG),
    number("replica.fetch.wait.max.ms", 500, 0, "How long a leader may wait for more before it answers a follower."),
    number("replica.fetch.max.bytes", 1 << 20, 0, "Bytes of one partition that a follower asks for at a time."),
    number("replica.fetch.response.max.bytes", 10 << 20, 0, "Bytes that a follower asks for at a time."),
    number("replica.socket.timeout.ms", 30_000, 1, "How long a follower waits for an answer."),
)
