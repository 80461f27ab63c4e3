"""Broker settings of replication, with Kafka's names."""

from typing import Final

from penstock.foundation.settings import LONG_MAX, Kind, Setting, number

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"

_PACKAGE: Final = "org.apache.kafka.common.replica"
RACK_AWARE: Final = f"{_PACKAGE}.RackAwareReplicaSelector"

REPLICATION_SETTINGS: Final = (
    number("replica.lag.time.max.ms", 30_000, 1, "How long a follower may lag before it is out of sync.", Kind.LONG),
    number("replica.fetch.wait.max.ms", 500, 0, "How long a leader may delay the response to a follower's Fetch."),
    number("replica.fetch.max.bytes", 1 << 20, 0, "Bytes of one partition in a follower's Fetch."),
    number("replica.fetch.response.max.bytes", 10 << 20, 0, "Bytes of all partitions in a follower's Fetch."),
    number("replica.socket.timeout.ms", 30_000, 1, "How long a follower waits for a response."),
    number(LEADER_RATE, LONG_MAX, 0, "Bytes per second sent to lagging throttled replicas.", Kind.LONG),
    number(FOLLOWER_RATE, LONG_MAX, 0, "Bytes per second fetched for lagging throttled replicas.", Kind.LONG),
    Setting(
        name="replica.selector.class",
        kind=Kind.STRING,
        default=RACK_AWARE,
        choices=(RACK_AWARE, f"{_PACKAGE}.LeaderSelector"),
        doc="Where consumers with a rack (`client.rack`) read: from a replica in that rack, or from the leader.",
    ),
)
