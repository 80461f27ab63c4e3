"""Signatures: botocore signs, we verify; and every later change is detected."""

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as Keys
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.http import HttpRequest
from penstock.security import sigv4
from penstock.security.credentials import AccessKey, Credentials
from penstock.security.errors import (
    IncompleteSignature,
    InvalidClientTokenId,
    MissingAuthenticationToken,
    Refused,
    RequestExpired,
    SignatureDoesNotMatch,
)
from penstock.security.sigv4 import (
    PARAMETERS_MAX,
    SIGNED_HEADERS_MAX,
    SIGNING_KEYS_MAX,
    SKEW_S,
    Verifier,
    region_of,
    signing_key,
)
from tests.scaling import GROWTH_MAX, growth

KEY = AccessKey(access_key="AKIDEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
CREDENTIALS = Credentials(keys={KEY.access_key: KEY})
BODY = b'{"QueueUrl": "http://localhost:9324/000000000000/jobs", "MessageBody": "hello"}'


def now_ms() -> int:
    """Botocore signs with the time that it is."""
    return int(datetime.now(UTC).timestamp() * 1000)


def received(request: AWSRequest) -> HttpRequest:
    """A request as it comes out of a socket."""
    prepared = request.prepare()
    url = urlsplit(prepared.url)
    headers = {name.lower().encode(): str(value).encode() for name, value in prepared.headers.items()}
    headers = {name: value.strip(b"b'") if value.startswith(b"b'") else value for name, value in headers.items()}
    headers.setdefault(b"host", url.netloc.encode())
    body = prepared.body or b""
    body = body.encode() if isinstance(body, str) else body
    return HttpRequest(prepared.method.encode(), url.path or "/", url.query, headers, body)


def signed(
    *,
    method: str = "POST",
    url: str = "http://localhost:9324/",
    body: bytes = BODY,
    headers: dict[str, str] | None = None,
    secret: str = KEY.secret,
    name: str = KEY.access_key,
    region: str = "eu-west-1",
    service: str = "sqs",
    token: str | None = None,
) -> HttpRequest:
    request = AWSRequest(
        method=method, url=url, data=body, headers=headers or {"X-Amz-Target": "AmazonSQS.SendMessage"}
    )
    SigV4Auth(Keys(name, secret, token), service, region).add_auth(request)
    return received(request)


def presigned(
    *, url: str, expires: int = 60, method: str = "GET", headers: dict[str, str] | None = None
) -> HttpRequest:
    request = AWSRequest(method=method, url=url, headers=headers or {})
    SigV4QueryAuth(Keys(KEY.access_key, KEY.secret), "sqs", "us-east-1", expires=expires).add_auth(request)
    return received(request)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: signed(),
        lambda: signed(body=b""),
        lambda: signed(url="http://queue.example.org/000000000000/jobs.fifo"),
        lambda: signed(url="http://localhost/a/../b//c/./d/"),
        lambda: signed(url="http://localhost/a%20b/%C3%A9"),
        lambda: signed(method="GET", body=b"", url="http://localhost/?b=2&a=1&a=0&c=%20%2F%3D&d"),
        lambda: signed(headers={"X-Spaces": "  a   b  c ", "Content-Type": "application/x-amz-json-1.0"}),
        lambda: signed(token="a session token that is not looked at"),
        lambda: presigned(url="http://localhost:9324/000000000000/jobs?Action=ReceiveMessage&Version=2012-11-05"),
        lambda: presigned(url="http://localhost:9324/?Action=SendMessage&MessageBody=a%20b%2Bc%26d%3D%C3%A9"),
    ],
)
def test_signatures_of_botocore_are_accepted(request_of: Callable[[], HttpRequest]) -> None:
    assert Verifier(CREDENTIALS).verify(request_of(), now_ms()) is KEY


def test_a_payload_that_is_not_signed_may_be_any() -> None:
    request = AWSRequest(method="POST", url="https://localhost/", data=BODY)
    request.context["payload_signing_enabled"] = False
    auth = SigV4Auth(Keys(KEY.access_key, KEY.secret), "sqs", "eu-west-1")
    request.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
    auth.add_auth(request)
    found = received(request)
    assert Verifier(CREDENTIALS).verify(found._replace(body=b"anything"), now_ms()) is KEY
    pretended = {**found.headers, b"x-amz-content-sha256": hashlib.sha256(b"anything").hexdigest().encode()}
    with pytest.raises(SignatureDoesNotMatch):
        Verifier(CREDENTIALS).verify(found._replace(headers=pretended), now_ms())


def test_the_signing_key_is_that_of_awss_own_example() -> None:
    """From the documentation of Signature Version 4, `Deriving the signing key`."""
    key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20120215", "us-east-1", "iam")
    assert key.hex() == "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"


@pytest.mark.parametrize(
    "change",
    [
        lambda request: request._replace(body=request.body + b" "),
        lambda request: request._replace(method=b"PUT"),
        lambda request: request._replace(path="/other"),
        lambda request: request._replace(query="a=b"),
        lambda request: request._replace(headers={**request.headers, b"host": b"elsewhere"}),
        lambda request: request._replace(headers={**request.headers, b"x-amz-target": b"AmazonSQS.DeleteQueue"}),
    ],
)
def test_every_change_of_a_signed_request_is_detected(change: Callable[[HttpRequest], HttpRequest]) -> None:
    with pytest.raises(SignatureDoesNotMatch):
        Verifier(CREDENTIALS).verify(change(signed()), now_ms())


def test_a_target_that_is_not_signed_is_refused() -> None:
    request = signed(headers={"X-Other": "x"})
    added = request._replace(headers={**request.headers, b"x-amz-target": b"AmazonSQS.DeleteQueue"})
    with pytest.raises(SignatureDoesNotMatch, match="X-Amz-Target"):
        Verifier(CREDENTIALS).verify(added, now_ms())


def test_a_wrong_secret_and_an_unknown_key_are_different_errors() -> None:
    with pytest.raises(SignatureDoesNotMatch):
        Verifier(CREDENTIALS).verify(signed(secret="another"), now_ms())
    with pytest.raises(InvalidClientTokenId):
        Verifier(CREDENTIALS).verify(signed(name="AKIDOTHER"), now_ms())


def test_a_request_for_another_service_is_refused() -> None:
    with pytest.raises(SignatureDoesNotMatch, match="correct service: 'sqs'"):
        Verifier(CREDENTIALS).verify(signed(service="sns"), now_ms())


def test_a_request_that_is_not_signed_is_refused() -> None:
    with pytest.raises(MissingAuthenticationToken):
        Verifier(CREDENTIALS).verify(HttpRequest(b"POST", "/", "", {b"host": b"x"}, b""), now_ms())


@pytest.mark.parametrize("off_s", [-SKEW_S - 5, SKEW_S + 5])
def test_clocks_may_not_be_too_far_apart(off_s: int) -> None:
    request, now = signed(), now_ms()
    assert Verifier(CREDENTIALS).verify(request, now + (SKEW_S - 5) * 1000) is KEY
    assert Verifier(CREDENTIALS).verify(request, now - (SKEW_S - 5) * 1000) is KEY
    with pytest.raises(RequestExpired):
        Verifier(CREDENTIALS).verify(request, now + off_s * 1000)


def test_a_signed_url_lives_as_long_as_it_says() -> None:
    request, now = presigned(url="http://localhost/?Action=ListQueues", expires=3600), now_ms()
    assert Verifier(CREDENTIALS).verify(request, now + 3_590_000) is KEY
    with pytest.raises(RequestExpired):
        Verifier(CREDENTIALS).verify(request, now + 3_610_000)
    with pytest.raises(RequestExpired):
        Verifier(CREDENTIALS).verify(request, now - (SKEW_S + 5) * 1000)
    with pytest.raises(SignatureDoesNotMatch):
        Verifier(CREDENTIALS).verify(
            request._replace(query=request.query.replace("Expires=3600", "Expires=9999")), now
        )


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic dXNlcjpwYXNz",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE, SignedHeaders=host, Signature=00",
        "AWS4-HMAC-SHA256 Credential=A/20260101/r/sqs/aws4_request, SignedHeaders=host",
        "AWS4-HMAC-SHA256 Credential=A/20260101/r/sqs/aws4_request, Signature=00",
        "AWS4-HMAC-SHA256 Credential=A/20260101/r/sqs/aws4_request, SignedHeaders=b;a, Signature=00",
        "AWS4-HMAC-SHA256 Credential=A/20260101/r/sqs/other, SignedHeaders=host, Signature=00",
    ],
)
def test_a_signature_that_cannot_be_read_is_incomplete(authorization: str) -> None:
    headers = {b"host": b"x", b"x-amz-date": b"20260101T000000Z", b"authorization": authorization.encode()}
    with pytest.raises(IncompleteSignature):
        Verifier(CREDENTIALS).verify(HttpRequest(b"POST", "/", "", headers, b""), now_ms())


@pytest.mark.parametrize("expires", ["0", "604801", "x", "-1", "1e3"])
def test_a_signed_url_lives_a_week_at_most(expires: str) -> None:
    request = presigned(url="http://localhost/?Action=ListQueues")
    query = request.query.replace("X-Amz-Expires=60", f"X-Amz-Expires={expires}")
    with pytest.raises(IncompleteSignature, match="X-Amz-Expires"):
        Verifier(CREDENTIALS).verify(request._replace(query=query), now_ms())


def test_the_date_may_be_that_of_the_date_header() -> None:
    now = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    for date in ("Thu, 01 Jan 2026 00:00:00 GMT", "20260101T000000Z"):
        canonical = f"GET\n/\n\ndate:{date}\nhost:x\n\ndate;host\n{hashlib.sha256(b'').hexdigest()}"
        scope = "20260101/eu-west-1/sqs/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = signing_key(KEY.secret, "20260101", "eu-west-1")
        text = f"AWS4-HMAC-SHA256\n20260101T000000Z\n{scope}\n{digest}"
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        header = (
            f"AWS4-HMAC-SHA256 Credential={KEY.access_key}/{scope}, SignedHeaders=date;host, Signature={signature}"
        )
        headers = {b"host": b"x", b"date": date.encode(), b"authorization": header.encode()}
        assert Verifier(CREDENTIALS).verify(HttpRequest(b"GET", "/", "", headers, b""), now) is KEY


def test_a_date_that_is_none_is_incomplete() -> None:
    request = signed()
    headers = {name: value for name, value in request.headers.items() if name != b"x-amz-date"}
    for date in (b"", b"yesterday"):
        with pytest.raises(IncompleteSignature):
            Verifier(CREDENTIALS).verify(request._replace(headers={**headers, b"date": date}), now_ms())


def test_the_keys_of_days_and_regions_are_kept_and_do_not_grow_without_bound() -> None:
    verifier = Verifier(CREDENTIALS)
    now = now_ms()
    for number in range(SIGNING_KEYS_MAX + 20):
        request = signed(region=f"r{number}", secret="wrong")
        with pytest.raises(SignatureDoesNotMatch):
            verifier.verify(request, now)
    assert len(verifier._signing_keys) == SIGNING_KEYS_MAX


def test_the_region_of_a_request_is_the_one_that_it_is_signed_for() -> None:
    assert region_of(signed(region="ap-south-1")) == "ap-south-1"
    assert region_of(presigned(url="http://localhost/?Action=ListQueues")) == "us-east-1"
    assert region_of(HttpRequest(b"GET", "/", "", {}, b"")) is None


@given(st.binary(max_size=200), st.text(max_size=80), st.text(max_size=80))
def test_any_invalid_request_is_refused_without_another_error(header: bytes, path: str, query: str) -> None:
    headers = {b"authorization": b"AWS4-HMAC-SHA256 " + header, b"x-amz-date": header, b"host": header}
    with pytest.raises(Refused):
        Verifier(CREDENTIALS).verify(HttpRequest(b"POST", path, query, headers, header), 0)
    with pytest.raises(Refused):
        Verifier(CREDENTIALS).verify(HttpRequest(b"GET", path, "X-Amz-Algorithm=" + query, {}, header), 0)


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.text(st.characters(codec="utf-8"), max_size=20))
def test_the_order_and_spelling_of_parameters_do_not_matter(first: str, second: str) -> None:
    quoted = [sigv4.quote(each, safe="-_.~") for each in (first, second)]
    one = sigv4._canonical_query(f"a={quoted[0]}&b={quoted[1]}")
    assert one == sigv4._canonical_query(f"b={quoted[1]}&a={quoted[0]}")
    assert one == f"a={quoted[0]}&b={quoted[1]}"


# -- what is meant to take long


def with_authorization(text: str, **headers: str) -> HttpRequest:
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return HttpRequest(b"POST", "/", "", {b"host": b"x", b"authorization": text.encode(), **named}, b"")


def refused(request: HttpRequest) -> Callable[[], None]:
    def verify() -> None:
        with pytest.raises(Refused):
            Verifier(CREDENTIALS).verify(request, now_ms())

    return verify


@pytest.mark.parametrize("text", ["a", " ", ",", "a,", "=", "Credential= "])
def test_an_authorization_header_is_read_in_linear_time(text: str) -> None:
    def work(count: int) -> Callable[[], object]:
        return refused(with_authorization("AWS4-HMAC-SHA256 " + text * count + "x"))

    assert growth(work, 1000) < GROWTH_MAX


def test_fields_of_an_authorization_header_may_have_spaces_around_them_or_none() -> None:
    request = signed()
    text = request.headers[b"authorization"].decode()
    for changed in (text.replace(", ", ","), text.replace(", ", " ,  "), text + " ", text.replace(", ", ",\t")):
        headers = {**request.headers, b"authorization": changed.encode()}
        assert Verifier(CREDENTIALS).verify(request._replace(headers=headers), now_ms()) is KEY


def scoped(signed_headers: str, day: str = "20260101", region: str = "r") -> HttpRequest:
    credential = f"{KEY.access_key}/{day}/{region}/sqs/aws4_request"
    text = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed_headers}, Signature=00"
    return with_authorization(text, x_amz_date="20260101T000000Z")


MIDNIGHT_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: scoped("host;" + "x;" * 25_000 + "y"),
        lambda: scoped("host;host"),
        lambda: scoped(";".join(f"h{number:05d}" for number in range(SIGNED_HEADERS_MAX + 1))),
        lambda: scoped("host", region="r" * 65),
        lambda: scoped("host", region="r/" * 20_000),
    ],
)
def test_a_scope_and_signed_headers_are_bounded(request_of: Callable[[], HttpRequest]) -> None:
    with pytest.raises(IncompleteSignature):
        Verifier(CREDENTIALS).verify(request_of(), MIDNIGHT_MS)


def test_as_many_signed_headers_as_are_allowed_are_taken() -> None:
    names = sorted(["host", *(f"x{number:03d}" for number in range(SIGNED_HEADERS_MAX - 1))])
    with pytest.raises(SignatureDoesNotMatch, match="does not match the signature you provided"):
        Verifier(CREDENTIALS).verify(scoped(";".join(names)), MIDNIGHT_MS)


@pytest.mark.parametrize("day", ["2", "2026", "202601011"])
def test_the_day_of_the_scope_is_a_whole_day(day: str) -> None:
    with pytest.raises(SignatureDoesNotMatch, match="Date in Credential scope"):
        Verifier(CREDENTIALS).verify(scoped("host", day=day), MIDNIGHT_MS)


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 01 Jan 99999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999",
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "1 " * 30_000,
        "9" * 60_000 + "Z",
    ],
)
def test_a_date_header_that_is_no_date_is_incomplete(date: str) -> None:
    text = scoped("host").headers[b"authorization"].decode()
    with pytest.raises(Refused):
        Verifier(CREDENTIALS).verify(with_authorization(text, date=date), MIDNIGHT_MS)


def url_with(query: str) -> HttpRequest:
    request = presigned(url="http://localhost:9324/?Action=ListQueues")
    return request._replace(query=f"{request.query}&{query}")


@pytest.mark.parametrize("query", ["a&" * PARAMETERS_MAX, "a=%", "a=%zz", "%=1", "a=" + "%" * 60_000])
def test_a_signed_url_has_so_many_parameters_and_no_wrong_escapes(query: str) -> None:
    with pytest.raises(IncompleteSignature):
        Verifier(CREDENTIALS).verify(url_with(query), now_ms())


@pytest.mark.parametrize("text", ["%C3%A9", "%41", "a%20", "é", "==", "+"])
def test_the_parameters_of_a_url_are_read_in_linear_time(text: str) -> None:
    assert growth(lambda count: refused(url_with("a=" + text * count)), 1000) < GROWTH_MAX


def test_many_parameters_of_a_url_are_read_in_linear_time() -> None:
    def work(count: int) -> Callable[[], object]:
        return refused(url_with("&".join(f"n{number}=%41" for number in range(count))))

    assert growth(work, PARAMETERS_MAX // 9) < GROWTH_MAX


def test_the_bytes_of_a_parameter_are_signed_as_they_are() -> None:
    assert sigv4._canonical_query("a=%ff%C3%A9&b=%2f~") == "a=%FF%C3%A9&b=%2F~"
