"""TLS settings by Kafka's names, and the contexts that are built from them."""

import os
import ssl
from pathlib import Path

import pytest

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.tls_context import TlsContext
from penstock.foundation.tls_settings import TLS_SETTINGS, ClientAuth, TlsSettings, listener_setting
from tests.certificates import PASSWORD, Certificates


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def build(given: dict[str, str], *, server_side: bool = True) -> TlsContext:
    return TlsContext(TlsSettings.parse(given), server_side=server_side)


def test_a_setting_of_a_listener_overrides_the_one_for_all() -> None:
    given = {
        "ssl.client.auth": "required",
        "ssl.truststore.location": "all.pem",
        "listener.name.external.ssl.client.auth": "none",
        "listener.name.external.ssl.key.password": "x",
    }
    external, internal = TlsSettings.parse(given, "EXTERNAL"), TlsSettings.parse(given, "INTERNAL")
    assert (external.client_auth, internal.client_auth) == (ClientAuth.NONE, ClientAuth.REQUIRED)
    assert (external.key_password, internal.key_password) == ("x", "")
    assert external.truststore == internal.truststore == "all.pem"


def test_only_tls_settings_can_be_set_for_a_listener() -> None:
    assert listener_setting("listener.name.a.ssl.key.password") is TLS_SETTINGS.get("ssl.key.password")
    assert listener_setting("listener.name.a.max.connections") is None
    assert listener_setting("listener.name.a.ssl.no.such") is None
    assert listener_setting("ssl.key.password") is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type=JKS is not supported; set it to PEM, and convert the file"),
        ({"ssl.truststore.type": "PKCS12"}, "openssl pkcs12 -in"),
        ({"ssl.keystore.password": "x"}, "ssl.keystore.password is not for PEM files"),
        ({"ssl.keystore.location": "a", "ssl.keystore.key": "b"}, "exclude each other"),
        ({"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"}, "exclude each other"),
        ({"ssl.keystore.key": "b"}, "belong together"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "expected a list of at least 1 of TLSv1.2 or TLSv1.3"),
        ({"ssl.client.auth": "yes"}, "expected none or requested or required"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "ssl.endpoint.identification.algorithm='ldaps'"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "Python cannot choose"),
        (
            {
                "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "ssl.enabled.protocols": "TLSv1.3",
            },
            "has no suite of TLSv1.3",
        ),
    ],
)
def test_mistakes_are_refused_with_advice(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        TlsSettings.parse(given)
    assert said in str(caught.value)


def test_a_listener_needs_a_certificate_and_one_that_asks_for_certificates_a_trust_store() -> None:
    with pytest.raises(InvalidConfig, match=r"listener A has TLS, but no certificate; set ssl\.keystore\.location"):
        TlsSettings.parse({}).check_server("A")
    with pytest.raises(InvalidConfig, match=r"but no trusted authority; set ssl\.truststore\.location"):
        TlsSettings.parse({"ssl.keystore.location": "a", "ssl.client.auth": "requested"}).check_server("A")


def test_secrets_are_not_in_the_text_of_settings() -> None:
    given = {
        "ssl.key.password": "pass-1",
        "ssl.keystore.key": "key-2",
        "ssl.keystore.certificate.chain": "chain-3",
        "ssl.truststore.certificates": "trust-4",
    }
    assert not [text for text in given.values() if text in repr(TlsSettings.parse(given))]


def test_versions_and_cipher_suites_limit_the_context(made: Certificates) -> None:
    file = str(made.server())
    given = {"ssl.keystore.location": file, "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    context = build(given).current
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    names = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert names == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    only = build({"ssl.keystore.location": file, "ssl.enabled.protocols": "TLSv1.3"}).current
    assert only.minimum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(InvalidConfig, match="has NO-SUCH-SUITE, which this machine's OpenSSL does not have"):
        build({"ssl.keystore.location": file, "ssl.cipher.suites": "NO-SUCH-SUITE"})


def test_keys_and_certificates_can_be_text(made: Certificates) -> None:
    key, mark, chain = made.server().read_text().partition("-----BEGIN CERTIFICATE-----")
    given = {
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": mark + chain,
        "ssl.truststore.certificates": made.trust.read_text(),
        "ssl.client.auth": "required",
    }
    context = build(given).current
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_an_encrypted_key_needs_its_password(made: Certificates) -> None:
    file = str(made.encrypted("server"))
    build({"ssl.keystore.location": file, "ssl.key.password": PASSWORD})
    for wrong in ({}, {"ssl.key.password": "wrong-one"}):
        with pytest.raises(InvalidConfig, match=r"cannot be decrypted; is ssl\.key\.password right") as caught:
            build({"ssl.keystore.location": file, **wrong})
        assert "wrong-one" not in str(caught.value)


def test_broken_files_are_refused_with_their_names(made: Certificates, tmp_path: Path) -> None:
    file = made.server()
    key, mark, chain = file.read_text().partition("-----BEGIN CERTIFICATE-----")
    other = made.issue("other").read_text().partition("-----BEGIN CERTIFICATE-----")[0]
    broken = {
        "there is no certificate": key,
        "there is no private key": mark + chain,
        "does not belong to the first certificate": other + mark + chain,
        "it cannot be loaded": key + mark + "\nAAAA\n-----END CERTIFICATE-----\n",
    }
    for said, text in broken.items():
        file.write_text(text)
        with pytest.raises(InvalidConfig, match=said) as caught:
            build({"ssl.keystore.location": str(file)})
        assert str(file) in str(caught.value)
    with pytest.raises(InvalidConfig, match=r"cannot read .*: no such file"):
        build({"ssl.keystore.location": str(tmp_path / "missing.pem")})
    file.write_bytes(bytes.fromhex("3082feedfeed"))
    with pytest.raises(InvalidConfig, match="is not a PEM file; convert it: openssl pkcs12"):
        build({"ssl.keystore.location": str(file)})
    made.trust.write_text("hello")
    with pytest.raises(InvalidConfig, match="there is no certificate in PEM format"):
        build({"ssl.truststore.location": str(made.trust)}, server_side=False)


def test_a_context_is_rebuilt_when_its_file_changes_and_kept_when_the_new_file_is_broken(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    file = made.server()
    tls = build({"ssl.keystore.location": str(file)})
    first = tls.current
    tls.reload()
    assert tls.current is first
    made.server()
    tls.reload()
    second = tls.current
    assert second is not first
    file.write_text("broken")
    for _ in range(3):
        tls.reload()
    assert tls.current is second
    errors = [record.message for record in caplog.records if "tls_files_not_reloaded" in record.message]
    assert len(errors) == 1
    assert "the old certificates stay in use" in errors[0]
    os.unlink(file)
    tls.reload()
    made.server()
    tls.reload()
    assert tls.current is not second
