"""What conditions in policies of queues can ask about a request. Pure."""

from datetime import UTC, datetime
from typing import Final

from penstock.foundation.http import HttpRequest
from penstock.foundation.proxies import Proxies
from penstock.security.policy_conditions import (
    CURRENT_TIME,
    EPOCH_TIME,
    PRINCIPAL_ACCOUNT,
    REQUESTED_REGION,
    SECURE_TRANSPORT,
    SOURCE_IP,
    USER_AGENT,
    Facts,
)

AGENT_CHARS_MAX: Final = 1024


def facts_of(request: HttpRequest, account: str, region: str, proxies: Proxies, now_ms: int) -> Facts:
    """Returns the facts of a request that is signed with a key of `account`."""
    headers = request.headers
    is_secure = request.is_secure
    if proxies.has(request.host):
        is_secure = headers.get(b"x-forwarded-proto", b"").lower() == b"https"
    facts = {
        SOURCE_IP: proxies.client_host(request),
        SECURE_TRANSPORT: str(is_secure).lower(),
        PRINCIPAL_ACCOUNT: account,
        REQUESTED_REGION: region,
        CURRENT_TIME: datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(),
        EPOCH_TIME: str(now_ms // 1000),
    }
    if agent := headers.get(b"user-agent"):
        facts[USER_AGENT] = agent[:AGENT_CHARS_MAX].decode("latin-1")
    return facts
