"""Quotas of clients: lists, sets and removes them (KIP-546)."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.foundation.quota_entities import Entity
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    QuotaAlteration,
    QuotaOp,
)
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInfo:
    """The quotas of an entity, by name."""

    entity: Entity
    values: Mapping[str, float]


class ClientQuotas:
    """Administration of quotas over the Kafka protocol."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def all(self) -> list[QuotaInfo]:
        """Returns all quotas."""
        request = DescribeClientQuotasRequest(components=(), strict=False)

        async def attempt() -> list[QuotaInfo]:
            response: DescribeClientQuotasResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, "the quotas", response.error_message)
            return [
                QuotaInfo(
                    entity=tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)),
                    values={each.key: each.value for each in entry.values},
                )
                for entry in response.entries or ()
            ]

        return await self._client.retrying(attempt)

    async def change(self, entity: Entity, values: Mapping[str, float | None]) -> None:
        """Sets quotas of an entity; None removes one. Raises ServerError."""
        alteration = QuotaAlteration(
            entity=[AlteredQuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[QuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
        )
        request = AlterClientQuotasRequest(entries=[alteration], validate_only=False)

        async def attempt() -> None:
            response: AlterClientQuotasResponse = await self._client.request(Target.ANY, request)
            (result,) = response.entries
            check(result.error_code, "the quotas", result.error_message)

        await self._client.retrying(attempt)
