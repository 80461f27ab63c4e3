"""The front end put together, and who may use it: said once when the broker starts, and again when keys change."""

import logging
import secrets
from ipaddress import ip_address
from pathlib import Path

from penstock.broker.queues.service import QueueService
from penstock.foundation.address import Address
from penstock.foundation.clock import Clock
from penstock.foundation.time_slices import TimeSlices
from penstock.security.credential_file import read_credentials
from penstock.security.errors import InvalidCredentials
from penstock.sqs.front import SqsFront

logger = logging.getLogger(__name__)


def open_front(
    service: QueueService, clock: Clock, slices: TimeSlices, http: Address, credentials: Path | None
) -> SqsFront:
    """Raises InvalidCredentials. Without credentials, whoever reaches the address may do everything."""
    keys = None if credentials is None else read_credentials(credentials)
    if keys is None and not _is_loopback(http.host):
        logger.warning(
            "queues_open_to_all http=%s reason=%r",
            http,
            "no --credentials: whoever reaches this address may use every queue",
        )
    seed = secrets.token_bytes(10)
    return SqsFront(service, clock=clock, slices=slices, host=str(http), seed=seed, credentials=keys)


def reread_credentials(front: SqsFront, file: Path) -> None:
    """Use the keys that are in the file now. If it cannot be used, those of before go on to count."""
    try:
        keys = read_credentials(file)
    except InvalidCredentials as error:
        logger.error("credentials_not_read reason=%r", str(error))
        return
    front.use(keys)
    logger.info("credentials_read keys=%d", len(keys.keys))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
