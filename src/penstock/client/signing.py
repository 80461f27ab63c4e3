"""AWS Signature Version 4 for outgoing requests; security/sigv4.py verifies such signatures. Pure.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "sqs"
REGION_DEFAULT: Final = "us-east-1"
_TERMINATOR: Final = "aws4_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKeys:
    """An AWS access key pair, its region, and its session token."""

    access_key: str
    secret_key: str = field(repr=False)
    region: str = REGION_DEFAULT
    token: str = field(default="", repr=False)
    """Session token of temporary credentials, sent with each request."""


def keys_of(
    environment: Mapping[str, str], access_key: str | None = None, secret_key: str | None = None
) -> AccessKeys | None:
    """Returns the given keys, or else the keys in AWS's environment variables; None if there are none (no signing).

    >>> keys_of({"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}).region
    'eu-west-1'
    """
    is_given = bool(access_key or secret_key)
    access_key = access_key if is_given else environment.get("AWS_ACCESS_KEY_ID")
    secret_key = secret_key if is_given else environment.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        if is_given:
            raise ValueError("an access key and its secret key belong together; give both, or neither")
        return None  # an incomplete pair in the environment may be meant for another tool
    return AccessKeys(
        access_key=access_key,
        secret_key=secret_key,
        region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or REGION_DEFAULT,
        token="" if is_given else environment.get("AWS_SESSION_TOKEN", ""),
    )


def signed(headers: Mapping[str, str], body: bytes, path: str, keys: AccessKeys, now_ms: int) -> dict[str, str]:
    """Returns the headers of a POST with its signature added. Header names must be lower case; `host` is required."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    found = {**headers, "x-amz-date": stamp}
    if keys.token:
        found["x-amz-security-token"] = keys.token
    names = sorted(found)
    lines = ["POST", path, "", *(f"{name}:{found[name].strip()}" for name in names), ""]
    lines += [";".join(names), hashlib.sha256(body).hexdigest()]
    scope = f"{day}/{keys.region}/{SERVICE}/{_TERMINATOR}"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = b"AWS4" + keys.secret_key.encode()
    for part in (day, keys.region, SERVICE, _TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}".encode(), "sha256").hexdigest()
    credential = f"{keys.access_key}/{scope}"
    found["authorization"] = (
        f"{ALGORITHM} Credential={credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return found
