"""Creates the SQS request handler, and loads its access keys: at start, and again on SIGHUP."""

import logging
import secrets
from pathlib import Path
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.configs import Configs
from penstock.broker.queues.service import QueueService
from penstock.broker.settings import SEPARATE, SQS_ACCOUNT, SQS_LIMITS, SQS_REGION, SQS_REGIONS, STRICT
from penstock.foundation.access_key_settings import SQS_SECRET_KEY
from penstock.foundation.address import Address
from penstock.foundation.clock import Clock
from penstock.foundation.proxies import TRUSTED_PROXIES, Proxies
from penstock.security.credential_file import read_credentials
from penstock.security.credentials import SECRET_CHARS_MIN, Credentials
from penstock.security.errors import InvalidCredentials
from penstock.security.stored_keys import StoredKeys
from penstock.sqs.audit_trail import AuditTrail
from penstock.sqs.call import Endpoint
from penstock.sqs.namespaces import is_account
from penstock.sqs.request_handler import SqsRequestHandler

logger = logging.getLogger(__name__)

_NAMED_MAX: Final = 10
"""Maximum number of access keys that a warning in the log lists."""


def open_request_handler(
    service: QueueService,
    clock: Clock,
    broker: Broker,
    http: Address,
    credentials: Path | None,
    configs: Configs,
    stored: StoredKeys,
) -> SqsRequestHandler:
    """Creates the SQS request handler. `credentials`: the file of access keys; None if there is none. `stored`: the
    access keys in the metadata store. Raises InvalidCredentials if the file is invalid."""
    keys = None if credentials is None else _read(credentials)
    if keys is None and not stored.is_required and not http.is_local:
        logger.warning(
            "queues_open_to_all http=%s reason=%r",
            http,
            f"no --credentials and no {SQS_SECRET_KEY}: any client that can reach this address may use every queue "
            "and schema",
        )
    seed = secrets.token_bytes(10)
    endpoint = Endpoint(
        host=str(http),
        account=configs[SQS_ACCOUNT],
        region=configs[SQS_REGION],
        has_regions=configs[SQS_REGIONS] == SEPARATE,
        is_local=http.is_local,
        now_ms=clock.now_ms,
        proxies=Proxies(configs[TRUSTED_PROXIES]),
        is_strict=lambda: configs[SQS_LIMITS] == STRICT,
        authorizer=broker.authorizer,
    )
    return SqsRequestHandler(
        service,
        clock=clock,
        slices=broker.slices,
        endpoint=endpoint,
        seed=seed,
        credentials=keys,
        stored=stored,
        quotas=broker.quotas,
        audit=None if broker.audit is None else AuditTrail(broker.audit, endpoint.proxies),
    )


def _read(file: Path) -> Credentials:
    """Returns the access keys in the file; logs warnings about short secrets and owners that are not account ids."""
    found = read_credentials(file)
    short = [name for name, key in found.keys.items() if len(key.secret) < SECRET_CHARS_MIN]
    if short:
        logger.warning(
            "secrets_are_short keys=%s count=%d reason=%r",
            ",".join(short[:_NAMED_MAX]),
            len(short),
            f"a secret of fewer than {SECRET_CHARS_MIN} characters can be guessed",
        )
    names = [name for name, key in found.keys.items() if not is_account(key.owner)]
    if names:
        logger.warning(
            "owners_are_no_accounts keys=%s count=%d reason=%r",
            ",".join(names[:_NAMED_MAX]),
            len(names),
            "owners that are not account ids of 12 digits all share the default account",
        )
    return found


def reread_credentials(handler: SqsRequestHandler, file: Path) -> None:
    """Reloads the access keys from the file. If the file is invalid, the current keys stay in use."""
    try:
        keys = _read(file)
    except InvalidCredentials as error:
        logger.error("credentials_not_read reason=%r", str(error))
        return
    handler.use(keys)
    logger.info("credentials_read keys=%d", len(keys.keys))
