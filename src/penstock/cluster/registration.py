"""Store writes of broker registration: join, take the controller role, leave, drain. Pure.

A starting broker first removes its registration from before the restart, then leaves the ISRs of partitions whose
data it has lost, and only then registers: so it is never registered while wrongly counted as in sync.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from penstock.cluster import keys
from penstock.cluster.elections import without_data
from penstock.cluster.image import Broker, ClusterImage, PartitionState, Topic
from penstock.cluster.topic_changes import OPERATIONS_MAX
from penstock.coordination.store import ABSENT, Check, Delete, Op, Put
from penstock.foundation.address import Address
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition


class WrongCluster(PenstockError):
    """The data folder belongs to another cluster than the coordination store."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class NodeIdTaken(PenstockError):
    """Another process is registered with the node id of this broker."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Node id, addresses and data folder of a broker."""

    node_id: int
    host: str
    port: int
    folder: str
    endpoints: Mapping[str, Address] = field(default_factory=dict)
    """Advertised addresses by listener name; `host` and `port` are that of the inter-broker listener."""
    cluster_id: str = ""
    """The id of the cluster that the data folder belongs to; empty if the folder is new."""
    http: str = ""
    rack: str | None = None
    host_id: str = ""


def plan_cluster(image: ClusterImage, identity: Identity, new_cluster_id: str) -> list[Op]:
    """Returns the write that creates a missing cluster. Raises WrongCluster for a data folder of another cluster."""
    if keys.MOVING in image.versions:
        raise WrongCluster(
            "a cluster is being moved into this store, which is not complete; "
            "finish that with `penstock cluster migrate-store`, then start again"
        )
    if not image.cluster_id:
        if identity.cluster_id:
            raise WrongCluster(
                f"the data folder belongs to cluster {identity.cluster_id}, but the store holds no cluster; "
                "use the store that this cluster was created with, migrate it with "
                "`penstock cluster migrate-store`, or use an empty data folder"
            )
        return [
            Put(keys.CLUSTER, keys.encode({"cluster_id": new_cluster_id}), ABSENT),
            Check(keys.MOVING, ABSENT),
        ]
    if identity.cluster_id not in ("", image.cluster_id):
        raise WrongCluster(
            f"the data folder belongs to cluster {identity.cluster_id}, but the store to {image.cluster_id}; "
            "use the store of that cluster, or an empty data folder"
        )
    return []


def plan_retire(image: ClusterImage, identity: Identity, own: Container[int] | None = None) -> list[Op]:
    """Returns the writes that remove an old registration of this broker. Raises NodeIdTaken if another process
    made it: with another data folder, or with an epoch that is not in `own`, the epochs that this process has
    tried to register with. When the process starts, `own` is None, which accepts any epoch."""
    known = image.brokers.get(identity.node_id)
    if known is None:
        return []
    if own is not None and known.epoch not in own:
        raise NodeIdTaken(
            f"another process at {known.host}:{known.port} has registered as broker {known.node_id}, with the data "
            f"folder {known.folder} (this one is {identity.folder}); stop one of them"
        )
    if known.folder not in ("", identity.folder):
        raise NodeIdTaken(
            f"broker {identity.node_id} is registered at {known.host}:{known.port} with another data folder; "
            "use another --node-id for this one, or stop the other and wait until its session has expired"
        )
    gone = [keys.broker(identity.node_id), keys.incarnation(known.epoch)]
    controller = image.controller
    if controller is not None and controller.node_id == known.node_id and controller.broker_epoch == known.epoch:
        gone.append(keys.CONTROLLER)
    return [Delete(key, image.versions[key]) for key in gone if key in image.versions]


def lost_partitions(
    image: ClusterImage, identity: Identity, is_lost: Callable[[Topic, int], bool]
) -> Iterator[tuple[TopicIdPartition, PartitionState]]:
    """Yields the partitions whose ISR contains this broker although its new process does not have their data.

    These are partitions kept only in memory, those that `is_lost` reports, and all if the data folder has changed.
    """
    elsewhere = image.folders.get(identity.node_id, identity.folder) != identity.folder
    for tp, state in image.find_partitions(lambda state: identity.node_id in state.isr):
        if elsewhere or state.in_memory or is_lost(image.topics[tp.topic_id], tp.partition):
            yield tp, state


def leave_isrs(
    image: ClusterImage, identity: Identity, is_lost: Callable[[Topic, int], bool], begun: Container[TopicIdPartition]
) -> dict[TopicIdPartition, PartitionState]:
    """Returns new states for partitions whose data this broker lost (see `lost_partitions`, also for `is_lost`):
    the broker does not lead, and leaves the ISR unless it is the only member. Returns as many states as fit into
    one transaction. `begun`: partitions to skip, because an earlier call returned them."""
    changed = (
        (tp, after)
        for tp, state in lost_partitions(image, identity, is_lost)
        if tp not in begun and (after := without_data(state, identity.node_id)) is not state
    )
    return dict(islice(changed, OPERATIONS_MAX - 1))


def plan_leave_isrs(node_id: int, states: Mapping[TopicIdPartition, PartitionState]) -> list[Op]:
    """Returns the writes that store `states`, the result of `leave_isrs`. They conflict if broker `node_id` is
    registered: it must leave the ISRs of partitions whose data it lost before it registers."""
    puts = [Put(keys.partition(*tp), state.dump(), state.version) for tp, state in states.items()]
    return [Check(keys.broker(node_id), ABSENT), *puts] if puts else []


def plan_register(
    image: ClusterImage, identity: Identity, epoch: int, lost: Mapping[TopicIdPartition, int]
) -> list[Op]:
    """Returns the writes that register a broker with a new broker epoch. `lost`: partitions whose data it lost as the
    last in-sync replica, with their leader epochs."""
    if identity.node_id in image.brokers:
        return []  # written, but the response was lost; or another process was faster
    broker = Broker(
        node_id=identity.node_id,
        host=identity.host,
        port=identity.port,
        endpoints=identity.endpoints,
        rack=identity.rack,
        http=identity.http,
        host_id=identity.host_id,
        epoch=epoch,
        folder=identity.folder,
        lost=lost,
    )
    ops: list[Op] = [
        Put(keys.broker(identity.node_id), broker.dump(), ABSENT, leased=True),
        Put(keys.incarnation(epoch), keys.encode(identity.node_id), ABSENT, leased=True),
    ]
    if image.folders.get(identity.node_id) != identity.folder:
        key = keys.folder(identity.node_id)
        ops.append(Put(key, keys.encode(identity.folder), image.version(key)))
    return ops


def plan_leaving(image: ClusterImage, node_id: int, epoch: int) -> list[Op]:
    """Returns the write that announces a broker's shutdown, so that others take over its partitions; empty if it is
    announced already, or the broker is not registered."""
    known = image.brokers.get(node_id)
    if known is None or known.epoch != epoch or known.leaving:
        return []
    key, incarnation = keys.broker(node_id), keys.incarnation(epoch)
    return [
        Put(key, replace(known, leaving=True).dump(), image.versions[key]),
        Check(incarnation, image.versions[incarnation]),
    ]


def plan_take_control(image: ClusterImage, node_id: int, broker_epoch: int) -> list[Op]:
    """Returns the writes that make a broker the controller; empty if there is a controller."""
    incarnation, known = keys.incarnation(broker_epoch), image.brokers.get(node_id)
    if image.controller is not None or incarnation not in image.versions or known is None or known.leaving:
        return []
    epoch = image.controller_epoch + 1
    value = {"node_id": node_id, "broker_epoch": broker_epoch, "epoch": epoch}
    return [
        Put(keys.CONTROLLER, keys.encode(value), ABSENT, leased=True),
        Put(keys.CONTROLLER_EPOCH, keys.encode(epoch), image.version(keys.CONTROLLER_EPOCH)),
        Check(incarnation, image.versions[incarnation]),
    ]


def is_controller(image: ClusterImage, node_id: int, broker_epoch: int) -> bool:
    """Whether a broker is the controller according to the image."""
    found = image.controller
    return (
        found is not None
        and (found.node_id, found.broker_epoch) == (node_id, broker_epoch)
        # A transaction may be seen in parts: wait for both keys.
        and found.epoch == image.controller_epoch
    )


def plan_drained(image: ClusterImage, node_id: int, drained: bool) -> list[Op]:
    """Returns the write that marks a broker as drained (it gets no new replicas), or removes the mark."""
    key = keys.drained(node_id)
    if drained == (node_id in image.drained):
        return []
    return [Put(key, keys.encode(True), ABSENT) if drained else Delete(key, image.versions[key])]
