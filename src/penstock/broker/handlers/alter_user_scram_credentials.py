"""AlterUserScramCredentials (KIP-554): sets and deletes the SCRAM credentials of users, all of a user or none."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.cluster.user_changes import UserChange, plan_user_changes
from penstock.cluster.users import check_user_name
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    DuplicateResource,
    PenstockError,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from penstock.foundation.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, ScramMechanism
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

logger = logging.getLogger(__name__)

SALT_BYTES_MAX: Final = 1024
BATCH: Final = 50
"""Number of users that are changed in one transaction of the store."""
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, call: Call, broker: Broker
) -> AlterUserScramCredentialsResponse:
    by_user: dict[str, list[Alteration]] = {}
    for entries in (request.deletions, request.upsertions):
        for entry in entries:
            by_user.setdefault(entry.name, []).append(entry)
    failed: dict[str, PenstockError] = {}
    try:
        call.check_cluster(Operation.ALTER)
    except PenstockError as error:
        failed = dict.fromkeys(by_user, error)
    else:
        changes = await broker.slices.run(_parse(by_user, failed))
        for at in range(0, len(changes), BATCH):
            failed |= await _apply(broker, changes[at : at + BATCH], call.principal)
    return await broker.slices.run(_answer(by_user, failed))


def _parse(by_user: Mapping[str, list[Alteration]], failed: dict[str, PenstockError]) -> Steps[list[UserChange]]:
    """Returns the valid changes. Adds the errors of other users to `failed`."""
    changes = []
    for found in with_breaks(by_user.items()):
        if found is None:
            yield
            continue
        name, of_user = found
        try:
            changes.append(_change(name, of_user))
        except PenstockError as error:
            failed[name] = error
    return changes


def _answer(names: Iterable[str], failed: Mapping[str, PenstockError]) -> Steps[AlterUserScramCredentialsResponse]:
    results = []
    for name in with_breaks(names):
        if name is None:
            yield
        else:
            results.append(_result(name, failed.get(name)))
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


async def _apply(broker: Broker, changes: Sequence[UserChange], principal: str) -> dict[str, PenstockError]:
    """Makes the changes that are possible; returns the errors of the others by user."""
    failed: dict[str, PenstockError] = {}
    await broker.metadata.change(lambda image: plan_user_changes(image, changes, failed))
    for change in changes:
        if change.name not in failed:
            names = ",".join(mechanism.sasl_name for mechanism in sorted(change.set))
            deleted = ",".join(mechanism.sasl_name for mechanism in sorted(change.delete))
            logger.info("user_changed user=%r set=%s deleted=%s by=%r", change.name, names, deleted, principal)
    return failed


def _change(name: str, alterations: Iterable[Alteration]) -> UserChange:
    """Validates the alterations of one user, in Kafka's order and with Kafka's messages."""
    delete: set[ScramMechanism] = set()
    credentials: dict[ScramMechanism, ScramCredential] = {}
    check_user_name(name)
    for entry in alterations:
        if entry.mechanism not in ScramMechanism._value2member_map_:
            raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
        mechanism = ScramMechanism(entry.mechanism)
        if mechanism in delete or mechanism in credentials:
            raise DuplicateResource("A user credential cannot be altered twice in the same request")
        if isinstance(entry, ScramCredentialDeletion):
            delete.add(mechanism)
        else:
            credentials[mechanism] = _credential(mechanism, entry)
    return UserChange(name=name, set=credentials, delete=frozenset(delete))


def _credential(mechanism: ScramMechanism, entry: ScramCredentialUpsertion) -> ScramCredential:
    if entry.iterations < ITERATIONS_MIN:
        raise UnacceptableCredential("Too few iterations")
    if entry.iterations > ITERATIONS_MAX:
        raise UnacceptableCredential("Too many iterations")
    salt, salted = bytes(entry.salt), bytes(entry.salted_password)
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise UnacceptableCredential(f"the salt has {len(salt)} bytes; expected 1 to {SALT_BYTES_MAX}")
    if len(salted) != mechanism.hash_bytes:
        raise UnacceptableCredential(
            f"the salted password has {len(salted)} bytes; {mechanism.sasl_name} makes {mechanism.hash_bytes}"
        )
    return ScramCredential.from_salted_password(mechanism, salted, salt, entry.iterations)


def _result(name: str, error: PenstockError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=name, error_code=ErrorCode.NONE, error_message=None)
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
