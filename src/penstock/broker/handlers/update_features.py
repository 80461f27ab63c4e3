"""UpdateFeatures: accepts only the feature levels that this release has, as they cannot be changed."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.handlers.api_versions import FEATURES
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.update_features import (
    FeatureUpdate,
    FeatureUpdateResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@handles(ApiKey.UPDATE_FEATURES, in_cluster(Operation.ALTER))
def update_features(request: UpdateFeaturesRequest, call: Call, broker: Broker) -> UpdateFeaturesResponse:
    refused = {update.feature: reason for update in request.feature_updates if (reason := _refusal(update))}
    code = ErrorCode.INVALID_UPDATE_VERSION if refused else ErrorCode.NONE
    # From version 2 on, all updates fail together (KIP-1022).
    is_one = call.version >= 2 and bool(refused)
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=code if is_one else ErrorCode.NONE,
        error_message=next(iter(refused.values())) if is_one else None,
        results=[
            FeatureUpdateResult(
                feature=update.feature,
                error_code=ErrorCode.INVALID_UPDATE_VERSION if update.feature in refused else ErrorCode.NONE,
                error_message=refused.get(update.feature),
            )
            for update in request.feature_updates
        ],
    )


def _refusal(update: FeatureUpdate) -> str | None:
    known = FEATURES.get(update.feature)
    if known is None:
        return (
            f"Invalid update version {update.max_version_level} for feature {update.feature}. It is not known here."
        )
    if update.max_version_level != known[1]:
        return (
            f"Invalid update version {update.max_version_level} for feature {update.feature}. Its level in this "
            f"release is {known[1]}, and changes with the release."
        )
    return None
