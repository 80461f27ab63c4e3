"""ElectLeaders (KIP-460): elects the preferred leader of partitions, or any replica (unclean)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.partition_lookup import find_partition, run_with_timeout
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.cluster.administration import elect_leaders as hold_elections
from penstock.cluster.elections import Election
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.ids import TopicIdPartition, TopicPartition
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

Results = dict[TopicPartition, PenstockError | None]


@handles(ApiKey.ELECT_LEADERS)
async def elect_leaders(request: ElectLeadersRequest, call: Call, broker: Broker) -> ElectLeadersResponse:
    try:
        call.check_cluster(Operation.ALTER)
        election = _election(request.election_type)
        if request.topic_partitions is None:
            results = await run_with_timeout(broker.metadata, request.timeout_ms, _elect_all(broker, election))
        else:
            results = await run_with_timeout(
                broker.metadata, request.timeout_ms, _elect(_partitions_in(request), broker, election)
            )
    except PenstockError as error:
        # An error of the whole request is also reported for each partition; version 0 has no other field for it.
        return await broker.slices.run(_answer(dict.fromkeys(_partitions_in(request), error), error.code))
    return await broker.slices.run(_answer(results))


def _election(number: int) -> Election:
    try:
        return Election(number)
    except ValueError:
        raise InvalidRequest(
            f"election type {number} does not exist; expected 0 (preferred) or 1 (unclean)"
        ) from None


def _partitions_in(request: ElectLeadersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic, number) for topic in request.topic_partitions or () for number in topic.partitions
    ]


async def _elect(names: list[TopicPartition], broker: Broker, election: Election) -> Results:
    results: Results = dict.fromkeys(names)
    tps: dict[TopicIdPartition, TopicPartition] = {}

    def find() -> Steps[None]:
        for name in with_breaks(names):
            if name is None:
                yield
                continue
            try:
                tps[find_partition(broker, *name)] = name
            except PenstockError as error:
                results[name] = error

    await broker.slices.run(find())
    held = await hold_elections(broker.metadata, tps, election)
    return results | {tps[tp]: error for tp, error in held.items()}


async def _elect_all(broker: Broker, election: Election) -> Results:
    """Elects leaders of all partitions; the result omits partitions that needed no election."""
    names = await broker.slices.run(_all_names(broker))
    results = await _elect(names, broker, election)
    return {
        name: error for name, error in results.items() if error is None or error.code != ErrorCode.ELECTION_NOT_NEEDED
    }


def _all_names(broker: Broker) -> Steps[list[TopicPartition]]:
    names: list[TopicPartition] = []
    for topic in broker.image.topics.values():
        names += [TopicPartition(topic.name, number) for number in topic.partitions]
        yield
    return names


def _answer(results: Results, code: ErrorCode = ErrorCode.NONE) -> Steps[ElectLeadersResponse]:
    topics: dict[str, list[PartitionResult]] = {}
    for found in with_breaks(results.items()):
        if found is None:
            yield
            continue
        name, error = found
        topics.setdefault(name.topic, []).append(
            PartitionResult(
                partition_id=name.partition,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
            )
        )
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=entries) for topic, entries in topics.items()
        ],
    )
