"""AWS Signature Version 4: verifies the signature of a request, in its headers or in its URL. Pure.

The current time is a parameter. The string to sign is rebuilt from the request; its HMAC with the secret of the
access key must equal the request's signature.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

Parsing takes linear time, and counts are bounded: the input comes from clients that are not authenticated yet.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, quote_from_bytes

from penstock.foundation.http import HttpRequest
from penstock.foundation.percent import unescape
from penstock.security.credentials import AccessKey, Keys
from penstock.security.errors import (
    IncompleteSignature,
    InvalidClientTokenId,
    MissingAuthenticationToken,
    RequestExpired,
    SignatureDoesNotMatch,
)

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "sqs"
SKEW_S: Final = 900
"""Maximum difference, in seconds, between the time of signing and the broker's clock."""
EXPIRES_S_MAX: Final = 604_800
"""Maximum validity of a presigned URL, in seconds: a week."""
SIGNING_KEYS_MAX: Final = 1024
SIGNED_HEADERS_MAX: Final = 256
PARAMETERS_MAX: Final = 1000
"""Maximum number of URL parameters. The largest legal request, ten messages of ten attributes, has about 400."""
REGION_CHARS_MAX: Final = 64
UNSIGNED_PAYLOAD: Final = b"UNSIGNED-PAYLOAD"
_INVALID_KEY: Final = "The security token included in the request is invalid."
_TERMINATOR: Final = "aws4_request"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_STAMP_CHARS: Final = len("20260131T235959Z")
_DATE_CHARS_MAX: Final = 64
_FIELDS_MAX: Final = 8
"""Maximum number of fields in an Authorization header that are parsed; three are defined."""
_UNRESERVED: Final = "-_.~"


class Signed(NamedTuple):
    """The signature parameters of a request."""

    access_key: str
    day: str
    region: str
    service: str
    stamp: str
    """The time of signing, to the second, as in X-Amz-Date."""
    headers: tuple[str, ...]
    signature: str
    expires_s: int
    """The validity of a presigned URL in seconds; 0 if the signature is in the headers."""


class Verifier:
    """Verifies request signatures. Caches up to SIGNING_KEYS_MAX derived signing keys."""

    def __init__(self, credentials: Keys) -> None:
        self._credentials = credentials
        self._signing_keys: dict[tuple[str, str, str], bytes] = {}
        """Signing keys by secret, day and region."""

    def verify(self, request: HttpRequest, now_ms: int) -> AccessKey:
        """Returns the access key that signed the request. Raises an error of security/errors.py."""
        signed = read_signed(request)
        key = self._credentials.find(signed.access_key)
        if key is None:
            raise InvalidClientTokenId(self._credentials.refusal(signed.access_key) or _INVALID_KEY)
        _check_scope(signed)
        _check_time(signed, now_ms)
        wanted = hmac.digest(self._signing_key(key, signed), _string_to_sign(request, signed), "sha256").hex()
        if not hmac.compare_digest(wanted.encode(), signed.signature.encode("utf-8", "replace")):
            raise SignatureDoesNotMatch(
                "The request signature we calculated does not match the signature you provided. Check your AWS "
                "Secret Access Key and signing method. Consult the service documentation for details."
            )
        return key

    def _signing_key(self, key: AccessKey, signed: Signed) -> bytes:
        cache_key = (key.secret, signed.day, signed.region)
        found = self._signing_keys.get(cache_key)
        if found is None:
            if len(self._signing_keys) >= SIGNING_KEYS_MAX:
                self._signing_keys.pop(next(iter(self._signing_keys)))
            found = self._signing_keys[cache_key] = signing_key(key.secret, signed.day, signed.region)
        return found


def signing_key(secret: str, day: str, region: str, service: str = SERVICE) -> bytes:
    """Derives the signing key for requests of one day, region and service."""
    key = b"AWS4" + secret.encode()
    for part in (day, region, service, _TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def region_of(request: HttpRequest) -> str | None:
    """Returns the region in a request's signature, without verifying the signature; None if there is no signature."""
    try:
        return read_signed(request).region
    except (MissingAuthenticationToken, IncompleteSignature):
        return None


def read_signed(request: HttpRequest) -> Signed:
    """Parses the signature parameters from the Authorization header or the URL."""
    authorization = request.headers.get(b"authorization")
    if authorization is not None:
        return _read_header(authorization.decode("latin-1"), request.headers)
    if "X-Amz-" in request.query:
        pairs = [pair for pair in _pairs(request.query) if pair[0].startswith(b"X-Amz-")]
        return _read_query({name.decode("latin-1"): value.decode("latin-1") for name, value in pairs})
    raise MissingAuthenticationToken("Request is missing Authentication Token")


def _read_header(text: str, headers: Mapping[bytes, bytes]) -> Signed:
    algorithm, _, rest = text.strip().partition(" ")
    if algorithm != ALGORITHM:
        raise IncompleteSignature(f"Unsupported AWS 'algorithm': '{algorithm[:64]}'; expected '{ALGORITHM}'.")
    parts = (part.partition("=") for part in rest.split(",", _FIELDS_MAX))
    fields = {name.strip(): value.strip() for name, _, value in parts}
    for name in ("Credential", "SignedHeaders", "Signature"):
        if not fields.get(name):
            raise IncompleteSignature(f"Authorization header requires '{name}' parameter.")
    return _signed(
        credential=fields["Credential"],
        stamp=_stamp_of(headers),
        headers=fields["SignedHeaders"],
        signature=fields["Signature"],
        expires_s=0,
    )


def _read_query(values: Mapping[str, str]) -> Signed:
    if values.get("X-Amz-Algorithm") != ALGORITHM:
        raise IncompleteSignature(f"'X-Amz-Algorithm' must be '{ALGORITHM}'.")
    for name in ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires"):
        if not values.get(name):
            raise IncompleteSignature(f"AWS query-string parameters must include '{name}'.")
    expires = values["X-Amz-Expires"]
    if not (expires.isascii() and expires.isdigit() and len(expires) < 9 and 0 < int(expires) <= EXPIRES_S_MAX):
        raise IncompleteSignature(f"'X-Amz-Expires' must be a number of seconds from 1 to {EXPIRES_S_MAX}.")
    return _signed(
        credential=values["X-Amz-Credential"],
        stamp=values["X-Amz-Date"],
        headers=values["X-Amz-SignedHeaders"],
        signature=values["X-Amz-Signature"],
        expires_s=int(expires),
    )


def _signed(*, credential: str, stamp: str, headers: str, signature: str, expires_s: int) -> Signed:
    parts = credential.split("/", 5)
    if len(parts) != 5 or parts[4] != _TERMINATOR or not all(parts) or len(parts[2]) > REGION_CHARS_MAX:
        raise IncompleteSignature("Credential must be ACCESS_KEY/YYYYMMDD/REGION/SERVICE/aws4_request.")
    names = tuple(headers.split(";", SIGNED_HEADERS_MAX))
    if len(names) > SIGNED_HEADERS_MAX:
        raise IncompleteSignature(f"'SignedHeaders' can have at most {SIGNED_HEADERS_MAX} names.")
    if headers != headers.lower() or list(names) != sorted(set(names)):
        raise IncompleteSignature("'SignedHeaders' must be in lower case and in order, each name once.")
    return Signed(parts[0], parts[1], parts[2], parts[3], stamp, names, signature, expires_s)


def _stamp_of(headers: Mapping[bytes, bytes]) -> str:
    """Returns the time of signing from X-Amz-Date, or else from Date, which may be in RFC 1123 format."""
    stamp = headers.get(b"x-amz-date", b"").decode("latin-1")
    if stamp:
        return stamp
    date = headers.get(b"date", b"").decode("latin-1")
    if not date:
        raise IncompleteSignature(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if date.endswith("Z"):
        return date
    try:
        return parsedate_to_datetime(date[:_DATE_CHARS_MAX]).astimezone(UTC).strftime(_STAMP)
    except (ValueError, OverflowError):  # the latter: a year of many digits
        raise IncompleteSignature("The 'Date' header must be a date of RFC 1123, or like 20260131T235959Z.") from None


def _check_scope(signed: Signed) -> None:
    if signed.service != SERVICE:
        raise SignatureDoesNotMatch(f"Credential should be scoped to correct service: '{SERVICE}'.")
    if signed.stamp[:8] != signed.day:
        raise SignatureDoesNotMatch(
            f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: "
            f"'{signed.day[:16]}' != '{signed.stamp[:8]}'."
        )


def _check_time(signed: Signed, now_ms: int) -> None:
    signed_s, now_s = _seconds_of(signed.stamp), now_ms / 1000
    if now_s > signed_s + (signed.expires_s or SKEW_S):
        raise RequestExpired(f"Signature expired: {signed.stamp} is now earlier than {_earliest(signed, now_s)}.")
    if signed_s > now_s + SKEW_S:
        raise RequestExpired(
            f"Signature not yet current: {signed.stamp} is still later than {_stamp(now_s + SKEW_S)}."
        )


@lru_cache(maxsize=256)
def _seconds_of(stamp: str) -> float:
    """Parses the time of signing; cached, because many requests are signed in the same second."""
    try:
        if len(stamp) != _STAMP_CHARS:
            raise ValueError
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise IncompleteSignature("Date must be in ISO-8601 'basic format', like 20260131T235959Z.") from None


def _earliest(signed: Signed, now_s: float) -> str:
    return _stamp(now_s - (signed.expires_s or SKEW_S))


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime(_STAMP)


def _string_to_sign(request: HttpRequest, signed: Signed) -> bytes:
    digest = hashlib.sha256(_canonical_request(request, signed)).hexdigest()
    scope = f"{signed.day}/{signed.region}/{signed.service}/{_TERMINATOR}"
    return f"{ALGORITHM}\n{signed.stamp}\n{scope}\n{digest}".encode("utf-8", "replace")


def _canonical_request(request: HttpRequest, signed: Signed) -> bytes:
    if "host" not in signed.headers:
        raise SignatureDoesNotMatch("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    # It selects the action: if it were not signed, it could be replaced in transit.
    if b"x-amz-target" in request.headers and "x-amz-target" not in signed.headers:
        raise SignatureDoesNotMatch("'X-Amz-Target' must be a 'SignedHeader' in the AWS Authorization.")
    lines = [request.method.decode("latin-1"), _canonical_path(request.path), _canonical_query(request.query)]
    for name in signed.headers:
        value = request.headers.get(name.encode("latin-1", "replace"), b"").decode("latin-1").strip()
        if "  " in value:
            value = " ".join(filter(None, value.split(" ")))
        lines.append(f"{name}:{value}")
    lines += ["", ";".join(signed.headers)]
    return "\n".join(lines).encode("latin-1", "replace") + b"\n" + _payload_hash(request)


def _payload_hash(request: HttpRequest) -> bytes:
    if request.headers.get(b"x-amz-content-sha256") == UNSIGNED_PAYLOAD:
        return UNSIGNED_PAYLOAD
    return hashlib.sha256(request.body).hexdigest().encode()


def _canonical_path(path: str) -> str:
    """Removes `.`, `..` and empty parts; percent-encodes the path a second time, as all AWS services but S3 do."""
    if "//" in path or "/." in path:
        kept: list[str] = []
        for part in path.split("/"):
            if part == "..":
                del kept[-1:]
            elif part not in ("", "."):
                kept.append(part)
        slash = "/" if kept and path.endswith("/") else ""
        path = "/" + "/".join(kept) + slash
    return path if path == "/" else quote(path, safe="/" + _UNRESERVED)


def _canonical_query(query: str) -> str:
    if not query:
        return ""
    pairs = (tuple(quote_from_bytes(part, safe=_UNRESERVED) for part in pair) for pair in _pairs(query))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs) if name != "X-Amz-Signature")


def _pairs(query: str) -> list[tuple[bytes, bytes]]:
    """Returns the unescaped names and values of the URL's parameters. Raises IncompleteSignature."""
    parts = query.encode("latin-1", "replace").split(b"&", PARAMETERS_MAX)
    if len(parts) > PARAMETERS_MAX:
        raise IncompleteSignature(f"A URL can have at most {PARAMETERS_MAX} parameters.")
    found = []
    for part in parts:
        if part:
            name, _, value = part.partition(b"=")
            found.append((_unescape(name), _unescape(value)) if b"%" in part else (name, value))
    return found


def _unescape(text: bytes) -> bytes:
    found = unescape(text)
    if found is None:
        raise IncompleteSignature("The URL has a % that is not followed by two hexadecimal digits.")
    return found
