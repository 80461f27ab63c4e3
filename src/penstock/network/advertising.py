"""The address that clients and other brokers are told."""

import logging

from penstock.foundation.address import Address
from penstock.foundation.machine import reachable_host

logger = logging.getLogger(__name__)


def advertised(advertise: Address | None, listen: Address) -> Address:
    """The address given by --advertise, or the one that is listened at. Warns of what may surprise.

    >>> str(advertised(None, Address.parse("127.0.0.1:9092")))
    '127.0.0.1:9092'
    """
    given = advertise or listen
    address = given.found_at(reachable_host())
    if address != given:
        logger.warning(
            "advertised_address_chosen address=%s reason=%r",
            address,
            f"clients cannot connect to {given}, so they are told this address; if they reach this broker by another "
            "one, give --advertise HOST:PORT",
        )
    if not listen.is_local:
        logger.warning(
            "kafka_open_to_all listen=%s reason=%r",
            listen,
            "there is no authentication: every client that reaches this port can read, write and delete everything",
        )
    return address
