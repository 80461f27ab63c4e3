"""The addresses that a broker advertises, and its values for node.id, listeners, log.dirs and similar settings."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.cluster.listeners import Listener, Listeners
from penstock.cluster.settings import (
    ADVERTISED_HTTP,
    ADVERTISED_LISTENERS,
    BROKER_ID,
    LISTENERS,
    LOG_DIRS,
    NODE_ID,
)
from penstock.foundation.address import Address
from penstock.foundation.host import reachable_host

logger = logging.getLogger(__name__)


def identity_settings(
    node_id: int, listeners: Listeners, http: Address, data_dir: Path, *, http_has_tls: bool
) -> dict[str, str]:
    """Returns the broker's id, addresses and data folder under the names of Kafka's broker settings."""
    at = http.advertised_as(listeners.peer_address.host)
    return {
        NODE_ID: str(node_id),
        BROKER_ID: str(node_id),
        LISTENERS: listeners.bind_text,
        ADVERTISED_LISTENERS: listeners.advertised_text,
        LOG_DIRS: str(data_dir.resolve()),
        ADVERTISED_HTTP: f"https://{at}" if http_has_tls else str(at),
    }


def advertised_listeners(listeners: Listeners, authenticates: Callable[[str], bool]) -> Listeners:
    """Returns the listeners with addresses that clients can connect to: a host like 0.0.0.0 is replaced by a guess.
    Warns about listeners that let everyone in. `authenticates`: whether a listener, by name, is not such."""
    advertised = tuple(_advertised(each, listeners.is_plain) for each in listeners)
    for each in listeners:
        if not each.bind.is_local and not authenticates(each.name):
            logger.warning(
                "kafka_open_to_all listen=%s reason=%r",
                each.bind,
                "there is no authentication: every client that reaches this port can read, write and delete "
                "everything",
            )
    return replace(listeners, all=advertised)


def _advertised(listener: Listener, is_plain: bool) -> Listener:
    given = listener.advertised
    if given is None:
        return listener
    address = given.advertised_as(reachable_host())
    if address != given:
        option = "--advertise HOST:PORT" if is_plain else f"it in advertised.listeners: {listener.name}://HOST:PORT"
        logger.warning(
            "advertised_address_chosen address=%s reason=%r",
            address,
            f"clients cannot connect to {given}, so this address is advertised; if clients reach this broker at "
            f"another one, give {option}",
        )
    return replace(listener, advertised=address)
