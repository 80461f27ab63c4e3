"""Very large requests about permissions, users, quotas and tokens, and very many logins do not hold the loop."""

import base64
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.broker.large_requests import UNDIVIDED_ELEMENTS_MAX
from penstock.foundation.acls import Operation, PatternType, Permission, ResourceType
from penstock.foundation.authorizer_settings import STANDARD_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.scram import ScramMechanism
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    QuotaAlteration,
    QuotaOp,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreatableRenewer, CreateDelegationTokenRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribedTokenOwner,
)
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    ScramUserName,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.raw import RawClient

from .probe import MONITOR_SETTINGS, Probe

OPEN, SASL, TLS = "OPEN", "SASL", "TLS"
MANY = 12_000
AT_ONCE = 10_000
STRANGER, ADMINISTRATOR = "stranger", "ANONYMOUS"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGINS = 300
UNDIVIDED = UNDIVIDED_ELEMENTS_MAX // 2 - 10
"""About the largest number of users and renewers in a request."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an authorizer: clients that do not log in are administrators, STRANGER may do nothing."""
    folder = tmp_path_factory.mktemp("target")
    broker = BrokerProcess(
        folder,
        {
            **MONITOR_SETTINGS,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} user_{STRANGER}="{STRANGER}";',
            "delegation.token.secret.key": "secret of tokens",
            "ssl.keystore.location": str(Certificates(folder / "certificates").server()),
            "connection.failed.authentication.delay.ms": 0,
        },
        listeners={OPEN: "PLAINTEXT", SASL: "SASL_PLAINTEXT", TLS: "SSL"},
    ).start()
    yield broker
    broker.finish()


def _address(broker: BrokerProcess, listener: str) -> tuple[str, int]:
    host, _, port = broker.at[listener].rpartition(":")
    return host, int(port)


def _log_in(raw: RawClient, mechanism: str, first: bytes) -> int:
    raw.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    code: int = raw.ask(SaslAuthenticateRequest(auth_bytes=first), 2).error_code
    return code


def _ask(broker: BrokerProcess, who: str, request: Any, version: int) -> Any:
    """Sends a request as ADMINISTRATOR, who does not log in, or as STRANGER."""
    with RawClient(_address(broker, SASL if who == STRANGER else OPEN)) as raw:
        raw.socket.settimeout(120.0)
        if who == STRANGER:
            assert _log_in(raw, "PLAIN", f"\0{STRANGER}\0{STRANGER}".encode()) == 0
        return raw.ask(request, version)


def _acls(count: int, prefix: str = "topic", principals: int = 1) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=ResourceType.TOPIC,
                resource_name=f"{prefix}-{number // principals}",
                resource_pattern_type=PatternType.LITERAL,
                principal=f"User:user-{number % principals}",
                host="*",
                operation=Operation.READ,
                permission_type=Permission.ALLOW,
            )
            for number in range(count)
        ]
    )


def _filters(names: Sequence[str | None], pattern_type: int = PatternType.LITERAL) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter=name,
                pattern_type_filter=pattern_type,
                principal_filter=None,
                host_filter=None,
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            )
            for name in names
        ]
    )


def _quotas(count: int) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            QuotaAlteration(
                entity=[AlteredQuotaEntity(entity_type="user", entity_name=f"user-{number}")],
                ops=[QuotaOp(key="producer_byte_rate", value=1e6, remove=False)],
            )
            for number in range(count)
        ],
        validate_only=False,
    )


def _users(count: int) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[],
        upsertions=[
            ScramCredentialUpsertion(
                name=f"user-{number}",
                mechanism=ScramMechanism.SHA_512,
                iterations=4096,
                salt=b"salt",
                salted_password=bytes(64),
            )
            for number in range(count)
        ],
    )


def _deletion(number: int) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=f"user-{number}", mechanism=ScramMechanism.SHA_512)


def _codes(results: Sequence[Any]) -> set[int]:
    return {result.error_code for result in results}


@pytest.mark.parametrize("who", [STRANGER, ADMINISTRATOR])
@pytest.mark.parametrize("what", ["ACLs", "filters", "quotas", "users", "deleted users"])
def test_requests_with_very_many_changes(target: BrokerProcess, probe: Probe, who: str, what: str) -> None:
    with probe.watch(f"{what} by {who}"):
        match what:
            case "ACLs":
                results = _ask(target, who, _acls(MANY), 3).results
            case "filters":
                results = _ask(target, who, _filters([f"topic-{n}" for n in range(MANY)]), 3).filter_results
            case "quotas":
                results = _ask(target, who, _quotas(UNDIVIDED_ELEMENTS_MAX // 6 - 1), 1).entries
            case "users":
                results = _ask(target, who, _users(UNDIVIDED), 0).results
            case _:
                gone = [_deletion(number) for number in range(UNDIVIDED)]
                request = AlterUserScramCredentialsRequest(deletions=gone, upsertions=[])
                results = _ask(target, who, request, 0).results
    assert len(results) > UNDIVIDED // 4
    assert _codes(results) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED if who == STRANGER else 0}


def test_many_acls_come_are_listed_and_go(target: BrokerProcess, probe: Probe) -> None:
    everything = DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    with probe.watch("10,000 ACLs of 10,000 topics"):
        assert _codes(_ask(target, ADMINISTRATOR, _acls(AT_ONCE), 3).results) == {0}
    with probe.watch("10,000 ACLs of 10 topics"):
        assert _codes(_ask(target, ADMINISTRATOR, _acls(AT_ONCE, "few", 1000), 3).results) == {0}
    with probe.watch("a decision after 20,000 ACLs"):
        topics = [MetadataRequestTopic(topic_id=bytes(16), name=f"topic-{n}") for n in range(1000)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        assert _codes(_ask(target, STRANGER, request, 12).topics) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with probe.watch("20,000 ACLs are listed"):
        resources = _ask(target, ADMINISTRATOR, everything, 3).resources
    assert sum(len(resource.acls) for resource in resources) == 2 * AT_ONCE
    with probe.watch("filters that match 20,000 ACLs six times"):
        answer = _ask(target, ADMINISTRATOR, _filters([None] * 6, PatternType.ANY), 3)
        assert _codes(answer.filter_results) == {ErrorCode.POLICY_VIOLATION}
    with probe.watch("2,500 filters, each with all kinds of patterns"):
        names = [f"topic-{number}" for number in range(AT_ONCE // 4)]
        answer = _ask(target, ADMINISTRATOR, _filters(names, PatternType.MATCH), 3)
        assert {len(result.matching_acls) for result in answer.filter_results} == {1}
    with probe.watch("a filter that matches 17,500 ACLs"):
        (result,) = _ask(target, ADMINISTRATOR, _filters([None], PatternType.ANY), 3).filter_results
        assert len(result.matching_acls) == 2 * AT_ONCE - AT_ONCE // 4
    assert _ask(target, ADMINISTRATOR, everything, 3).resources == []


def test_many_users_and_quotas_come_and_are_described(target: BrokerProcess, probe: Probe) -> None:
    with probe.watch("1,000 users"):
        assert _codes(_ask(target, ADMINISTRATOR, _users(1000), 0).results) == {0}
    with probe.watch(f"{MANY:,} names of users"):
        names = [ScramUserName(name=f"user-{number}") for number in range(MANY)]
        results = _ask(target, ADMINISTRATOR, DescribeUserScramCredentialsRequest(users=names), 0).results
    assert len(results) == MANY
    assert _codes(results) == {0, ErrorCode.RESOURCE_NOT_FOUND}
    with probe.watch("1,000 quotas"):
        assert _codes(_ask(target, ADMINISTRATOR, _quotas(1000), 1).entries) == {0}


def test_tokens_with_many_renewers_and_owners(target: BrokerProcess, probe: Probe) -> None:
    with probe.watch(f"a token with {UNDIVIDED:,} renewers"):
        renewers = [CreatableRenewer(principal_type="User", principal_name=f"user-{n}") for n in range(UNDIVIDED)]
        request = CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, renewers=renewers, max_lifetime_ms=-1
        )
        code = _ask(target, STRANGER, request, 3).error_code
    assert code == ErrorCode.INVALID_REQUEST
    with probe.watch(f"tokens of {UNDIVIDED:,} owners"):
        owners = [DescribedTokenOwner(principal_type="User", principal_name=f"user-{n}") for n in range(UNDIVIDED)]
        answer = _ask(target, STRANGER, DescribeDelegationTokenRequest(owners=owners), 3)
    assert (answer.error_code, answer.tokens) == (0, [])


def test_many_wrong_passwords_at_once(target: BrokerProcess, probe: Probe) -> None:
    """The work for a password is done beside the event loop, for unknown users as well."""
    nonce = base64.b64encode(bytes(18)).decode()
    first = f"n,,n={STRANGER},r={nonce}".encode()
    with probe.watch(f"{LOGINS} wrong passwords"), ExitStack() as stack:
        clients = [stack.enter_context(RawClient(_address(target, SASL))) for _ in range(LOGINS)]
        for raw in clients:
            raw.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
            raw.send(SaslAuthenticateRequest(auth_bytes=first), 2)
        for raw in clients:
            assert raw.receive().error_code == 0
            challenge = raw.receive()
            assert challenge.error_code == 0
            joined = bytes(challenge.auth_bytes).decode().partition(",")[0].removeprefix("r=")
            proof = base64.b64encode(bytes(64)).decode()
            raw.send(SaslAuthenticateRequest(auth_bytes=f"c=biws,r={joined},p={proof}".encode()), 2)
        codes = {raw.receive().error_code for raw in clients}
    assert codes == {ErrorCode.SASL_AUTHENTICATION_FAILED}


def test_clients_that_only_begin_a_tls_handshake(target: BrokerProcess, probe: Probe) -> None:
    """The oldest handshakes are given up for new ones; others are served meanwhile."""
    hello = struct.pack(">BHH", 22, 0x0301, 512) + bytes(8)
    with probe.watch("1,000 TLS handshakes that stay half done"), ExitStack() as stack:
        for _ in range(1000):
            sock = stack.enter_context(socket.create_connection(_address(target, TLS)))
            sock.sendall(hello)


def test_clients_that_send_much_before_they_log_in(target: BrokerProcess) -> None:
    """A client that has not logged in may send only a small request: a large one closes the connection at once."""
    with RawClient(_address(target, SASL)) as raw:
        raw.socket.sendall(struct.pack(">i", 50 << 20))
        assert raw.is_closed_by_the_broker()


def test_clients_that_handshake_and_wait(target: BrokerProcess, probe: Probe) -> None:
    """Logins that stop half way take no threads: others log in meanwhile."""
    with probe.watch("200 logins that stop half way"), ExitStack() as stack:
        for _ in range(200):
            raw = stack.enter_context(RawClient(_address(target, SASL)))
            raw.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
            raw.receive()
        others = [threading.Thread(target=_metadata_as_stranger, args=(target,)) for _ in range(5)]
        for other in others:
            other.start()
        for other in others:
            other.join(60)
        assert not any(other.is_alive() for other in others)


def _metadata_as_stranger(broker: BrokerProcess) -> None:
    _ask(broker, STRANGER, MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
