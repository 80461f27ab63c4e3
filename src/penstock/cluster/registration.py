"""Being one of the brokers: what is written to join, to be the controller, and to leave. Pure.

A broker that starts first takes away the registration that it had before it was restarted, then leaves the ISRs of
partitions that it has no data of, and registers only then: nobody ever sees it registered and takes it for in sync.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from penstock.cluster import keys
from penstock.cluster.elections import without_data
from penstock.cluster.image import Broker, ClusterImage, PartitionState, Place, Topic
from penstock.cluster.topic_changes import OPERATIONS_MAX
from penstock.coordination.store import ABSENT, Check, Delete, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class WrongCluster(PenstockError):
    """The data folder belongs to another cluster than the store."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class NodeIdTaken(PenstockError):
    """Another process is this broker."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a broker is, and how it is reached."""

    node_id: int
    host: str
    port: int
    folder: str
    """The id of its data folder."""
    cluster_id: str = ""
    """The cluster that the folder belongs to; empty if it is new."""
    http: str = ""
    rack: str | None = None
    host_id: str = ""


def plan_cluster(image: ClusterImage, identity: Identity, new_cluster_id: str) -> list[Op]:
    """The write that makes the cluster, if this is its first broker. Refuses another cluster's data."""
    if keys.MOVING in image.versions:
        raise WrongCluster(
            "a cluster is being moved into this store, and not all of it is there; "
            "finish that with `penstock cluster migrate-store`, then start again"
        )
    if not image.cluster_id:
        if identity.cluster_id:
            raise WrongCluster(
                f"the data folder belongs to cluster {identity.cluster_id}, and the store knows of no cluster; "
                "give the address of the store that this cluster was made with, move it there with "
                "`penstock cluster migrate-store`, or give an empty data folder"
            )
        return [
            Put(keys.CLUSTER, keys.encode({"cluster_id": new_cluster_id}), ABSENT),
            Check(keys.MOVING, ABSENT),
        ]
    if identity.cluster_id not in ("", image.cluster_id):
        raise WrongCluster(
            f"the data folder belongs to cluster {identity.cluster_id}, and the store to {image.cluster_id}; "
            "give the store of that cluster, or an empty data folder"
        )
    return []


def plan_retire(image: ClusterImage, identity: Identity, own: Container[int] | None = None) -> list[Op]:
    """The writes that take away an earlier registration of the same broker, made before it was restarted.

    `own`: the epochs that this process has tried to register with, if it is not only just starting.
    """
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
            "give this one another --node-id, or stop the other and wait until its lease is over"
        )
    gone = [keys.broker(identity.node_id), keys.incarnation(known.epoch)]
    controller = image.controller
    if controller is not None and controller.node_id == known.node_id and controller.broker_epoch == known.epoch:
        gone.append(keys.CONTROLLER)
    return [Delete(key, image.versions[key]) for key in gone if key in image.versions]


def lost_places(
    image: ClusterImage, identity: Identity, is_lost: Callable[[Topic, int], bool]
) -> Iterator[tuple[Place, PartitionState]]:
    """The partitions that count on a broker as in sync, and that it has no data of when its process is a new one.

    Those in memory, those that are `is_lost` from its folder, and all of them if its data lay in another folder.
    """
    elsewhere = image.folders.get(identity.node_id, identity.folder) != identity.folder
    for place, state in image.placed(lambda state: identity.node_id in state.isr):
        if elsewhere or state.in_memory or is_lost(image.topics[place.topic_id], place.number):
            yield place, state


def leave_isrs(
    image: ClusterImage, identity: Identity, is_lost: Callable[[Topic, int], bool], begun: Container[Place]
) -> dict[Place, PartitionState]:
    """How partitions must be before a broker registers that has no data of them; as many as fit into a transaction.

    `begun`: those that begin anew already.
    """
    changed = (
        (place, after)
        for place, state in lost_places(image, identity, is_lost)
        if place not in begun and (after := without_data(state, identity.node_id)) is not state
    )
    return dict(islice(changed, OPERATIONS_MAX - 1))


def plan_leave_isrs(node_id: int, states: Mapping[Place, PartitionState]) -> list[Op]:
    """The writes that make partitions so, on the condition that the broker is not registered meanwhile."""
    puts = [Put(keys.partition(*place), state.dump(), state.version) for place, state in states.items()]
    return [Check(keys.broker(node_id), ABSENT), *puts] if puts else []


def plan_register(image: ClusterImage, identity: Identity, epoch: int, lost: Mapping[Place, int]) -> list[Op]:
    """The writes with which a broker is there, under an epoch that nobody else has."""
    if identity.node_id in image.brokers:
        return []  # it was written and the answer was lost, or somebody else was faster
    broker = Broker(
        node_id=identity.node_id,
        host=identity.host,
        port=identity.port,
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
    """The write with which a broker says that it is about to stop."""
    known = image.brokers.get(node_id)
    if known is None or known.epoch != epoch or known.leaving:
        return []
    key, incarnation = keys.broker(node_id), keys.incarnation(epoch)
    return [
        Put(key, replace(known, leaving=True).dump(), image.versions[key]),
        Check(incarnation, image.versions[incarnation]),
    ]


def plan_take_control(image: ClusterImage, node_id: int, broker_epoch: int) -> list[Op]:
    """The writes with which a broker becomes the controller, if there is none."""
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


def has_control(image: ClusterImage, node_id: int, broker_epoch: int) -> bool:
    """Whether a broker is the controller, as far as the image shows."""
    found = image.controller
    return (
        found is not None
        and (found.node_id, found.broker_epoch) == (node_id, broker_epoch)
        # Of a transaction that is seen in parts, wait for the other one.
        and found.epoch == image.controller_epoch
    )


def plan_drained(image: ClusterImage, node_id: int, drained: bool) -> list[Op]:
    """The write that keeps new replicas away from a broker, or lets it have some again."""
    key = keys.drained(node_id)
    if drained == (node_id in image.drained):
        return []
    return [Put(key, keys.encode(True), ABSENT) if drained else Delete(key, image.versions[key])]
