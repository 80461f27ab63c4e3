"""ApiVersions: lists the APIs, versions and features that this broker supports."""

import re
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import APIS, handles
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_PRODUCE_ADVERTISED_FROM: Final = 0
"""Lowest Produce version that ApiVersions lists. Versions 0 to 2 are refused, but librdkafka compresses only if
version 0 is listed (KAFKA-18659)."""


FEATURES: Final = {
    "group.version": (1, 1),  # the consumer protocol, KIP-848
    "share.version": (1, 1),  # share groups, KIP-932
    "streams.version": (1, 1),  # streams groups, KIP-1071
    "transaction.version": (1, 2),  # 2: one epoch per transaction, partitions are added by producing to them, KIP-890
}
"""Supported versions of each feature, as (lowest, highest); clients may use the highest, which is finalized."""


@handles(ApiKey.API_VERSIONS)
def api_versions(request: ApiVersionsRequest, call: Call, broker: Broker) -> ApiVersionsResponse:
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    if request.cluster_id not in (None, broker.image.cluster_id) or request.node_id not in (-1, broker.node_id):
        # The client's metadata is of another cluster, or of a broker that had this address before (KIP-1242).
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=())
    if call.version >= 3:
        broker.telemetry.set_software(call.peer, request.client_software_name, request.client_software_version)
    return served(ErrorCode.NONE)


def served(error: ErrorCode) -> ApiVersionsResponse:
    """Returns the response that lists every API with its versions. `error`: UNSUPPORTED_VERSION if the version of
    the ApiVersions request was too new (the client then retries), else NONE."""
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersion(
                api_key=key,
                min_version=_PRODUCE_ADVERTISED_FROM if key == ApiKey.PRODUCE else api.versions[0],
                max_version=api.versions[-1],
            )
            for key, api in sorted(APIS.items())
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in FEATURES.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=last, max_version_level=last)
            for name, (_, last) in FEATURES.items()
        ],
    )
