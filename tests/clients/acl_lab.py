"""A broker with an authorizer: users log in with PLAIN, and `admin` may do everything."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from penstock.client.address import parse_bootstrap
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.client.security import SecuritySettings
from penstock.foundation.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from penstock.foundation.authorizer_settings import STANDARD_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import QUIET

LISTENER = "SASL"
ADMIN = "admin"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
DENIALS = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    )
)


class Rule(NamedTuple):
    """An ACL for tests, for all hosts and with a literal name unless said otherwise."""

    operation: Operation
    resource_type: ResourceType = ResourceType.CLUSTER
    name: str = CLUSTER_NAME
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = "*"


class AclLab:
    def __init__(self, folder: Path, users: Iterable[str], settings: dict[str, object] | None = None) -> None:
        passwords = " ".join(f'user_{name}="{name}"' for name in (ADMIN, *users))
        login = f'{MODULE} username="{ADMIN}" password="{ADMIN}" {passwords};'
        self.broker = BrokerProcess(
            folder,
            {
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": f"User:{ADMIN}",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl.plain.sasl.jaas.config": login,
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "group.initial.rebalance.delay.ms": 0,
                **(settings or {}),
            },
            listeners={LISTENER: "SASL_PLAINTEXT"},
        ).start()
        self.at = self.broker.at[LISTENER]
        self.admin = AdminClient(self.librdkafka(ADMIN))

    def librdkafka(self, user: str, **options: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.at, **self.properties(user), **QUIET, **options}

    def properties(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": user,
        }

    async def connect(self, user: str) -> Connection:
        settings = ConnectionSettings(security=SecuritySettings.parse(self.properties(user)))
        return await open_connection(parse_bootstrap(self.at)[0], settings)


async def grant(admin: Connection, user: str, *rules: Rule) -> None:
    creations = [
        AclCreation(
            resource_type=rule.resource_type,
            resource_name=rule.name,
            resource_pattern_type=rule.pattern_type,
            principal=f"User:{user}",
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    answer = await admin.request(CreateAclsRequest(creations=creations))
    assert [result.error_code for result in answer.results] == [0] * len(rules), answer


async def revoke_all(admin: Connection, user: str) -> int:
    """Deletes all ACLs of a user; returns their number."""
    everything = DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=f"User:{user}",
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    answer = await admin.request(DeleteAclsRequest(filters=[everything]))
    assert answer.filter_results[0].error_code == 0, answer
    return len(answer.filter_results[0].matching_acls)
