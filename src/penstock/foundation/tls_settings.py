"""TLS settings by Kafka's names: parsed and validated for a listener or for a client. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import Kind, Setting, Table

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
PEM: Final = "PEM"
SUITES_OF_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_CONVERT: Final = (
    "openssl pkcs12 -in store.p12 -out store.pem -noenc (a JKS file first: keytool -importkeystore -srckeystore "
    "store.jks -destkeystore store.p12 -deststoretype PKCS12)"
)
KEYSTORE_TYPE: Final = "ssl.keystore.type"
KEYSTORE: Final = "ssl.keystore.location"
CHAIN: Final = "ssl.keystore.certificate.chain"
KEY: Final = "ssl.keystore.key"
KEY_PASSWORD: Final = "ssl.key.password"
TRUSTSTORE_TYPE: Final = "ssl.truststore.type"
TRUSTSTORE: Final = "ssl.truststore.location"
TRUSTED: Final = "ssl.truststore.certificates"
REVOKED: Final = "ssl.crl.location"
VERSIONS: Final = "ssl.enabled.protocols"
CIPHERS: Final = "ssl.cipher.suites"
CLIENT_AUTH: Final = "ssl.client.auth"
HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"
MAPPING_RULES: Final = "ssl.principal.mapping.rules"


class ClientAuth(StrEnum):
    """Whether clients of a listener must show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


def _text(name: str, doc: str, default: str = "") -> Setting:
    return Setting(name=name, kind=Kind.STRING, default=default, doc=doc)


def _secret(name: str, doc: str) -> Setting:
    return Setting(name=name, kind=Kind.PASSWORD, default="", doc=doc)


TLS_SETTINGS: Final = Table(
    [
        _text(KEYSTORE_TYPE, "The format of the key store: PEM. Others must be converted.", PEM),
        _text(KEYSTORE, "A PEM file with the private key and the certificate chain."),
        _secret("ssl.keystore.password", "Not allowed: PEM files have ssl.key.password."),
        _secret(CHAIN, "The certificate chain as PEM text, in place of a file."),
        _secret(KEY, "The private key as PEM text, in place of a file."),
        _secret(KEY_PASSWORD, "The password of the private key, if it is encrypted."),
        _text(TRUSTSTORE_TYPE, "The format of the trust store: PEM. Others must be converted.", PEM),
        _text(TRUSTSTORE, "A PEM file with the certificates of the authorities that are trusted."),
        _secret("ssl.truststore.password", "Not allowed: certificates are not secret."),
        _secret(TRUSTED, "The certificates of trusted authorities as PEM text, in place of a file."),
        _text(REVOKED, "A PEM file with the revocation lists of all trusted authorities."),
        Setting(
            name=VERSIONS,
            kind=Kind.LIST,
            default=f"{TLS_1_2},{TLS_1_3}",
            minimum=1,
            choices=(TLS_1_2, TLS_1_3),
            doc="The TLS versions that are allowed.",
        ),
        Setting(
            name="ssl.protocol",
            kind=Kind.STRING,
            default=TLS_1_3,
            choices=("TLS", TLS_1_2, TLS_1_3),
            doc="Accepted, and without effect: ssl.enabled.protocols decides.",
        ),
        Setting(
            name=CIPHERS,
            kind=Kind.LIST,
            default="",
            doc="The cipher suites that are allowed, by their IANA names. The default is OpenSSL's.",
        ),
        Setting(
            name=CLIENT_AUTH,
            kind=Kind.STRING,
            default=ClientAuth.NONE.value,
            choices=tuple(each.value for each in ClientAuth),
            doc="Whether clients must show a certificate of a trusted authority (mTLS).",
        ),
        Setting(
            name=HOST_CHECK,
            kind=Kind.STRING,
            default="https",
            choices=("https", ""),
            doc="`https`: a client checks that the server's certificate is for the host that it connects to.",
        ),
        _text(
            MAPPING_RULES,
            "Rules that map the subject of a client's certificate to a user name (KIP-371).",
            "DEFAULT",
        ),
    ]
)
"""TLS settings of listeners and clients. The prefix `listener.name.NAME.` makes one a setting of that listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Parsed TLS settings. Secrets are left out of its text form."""

    keystore: str = ""
    """Path of a PEM file with key and certificates; empty if they are given as text, or not at all."""
    chain: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore: str = ""
    trusted: str = field(default="", repr=False)
    revoked: str = ""
    versions: tuple[str, ...] = (TLS_1_2, TLS_1_3)
    ciphers: tuple[str, ...] = ()
    """OpenSSL's names of the cipher suites of TLS 1.2; empty for OpenSSL's default."""
    client_auth: ClientAuth = ClientAuth.NONE
    checks_host: bool = True
    mapping_rules: str = "DEFAULT"

    @classmethod
    def parse(cls, given: Mapping[str, str], listener: str = "") -> "TlsSettings":
        """Parses the settings of a client or, if `listener` is its name, of a listener. Raises InvalidConfig.

        >>> given = {"ssl.client.auth": "none", "listener.name.b.ssl.client.auth": "required"}
        >>> TlsSettings.parse(given, "B").client_auth
        <ClientAuth.REQUIRED: 'required'>
        """
        prefix = listener_prefix(listener) if listener else ""
        values = {}
        for setting in TLS_SETTINGS:
            own = prefix + setting.name
            name = own if prefix and own in given else setting.name
            values[setting.name] = setting.parse(given.get(name, setting.default))
        _check_types(values)
        versions, ciphers = _ciphers(values[VERSIONS], values[CIPHERS])
        return cls(
            keystore=values[KEYSTORE],
            chain=values[CHAIN],
            key=values[KEY],
            key_password=values[KEY_PASSWORD],
            truststore=values[TRUSTSTORE],
            trusted=values[TRUSTED],
            revoked=values[REVOKED],
            versions=versions,
            ciphers=ciphers,
            client_auth=ClientAuth(values[CLIENT_AUTH]),
            checks_host=values[HOST_CHECK] == "https",
            mapping_rules=values[MAPPING_RULES],
        )

    def with_texts(self, read: Callable[[str, str], str]) -> "TlsSettings":
        """Returns the settings with the text of the files in place of their paths. `read` returns the text of a file,
        given the name of the setting and the path."""
        found = self
        if self.keystore:
            found = replace(found, keystore="", key=read(KEYSTORE, self.keystore), chain="")
        if self.truststore:
            found = replace(found, truststore="", trusted=read(TRUSTSTORE, self.truststore))
        return found

    @property
    def has_key(self) -> bool:
        return bool(self.keystore or self.key)

    @property
    def has_trust(self) -> bool:
        return bool(self.truststore or self.trusted)

    def check_server(self, listener: str) -> None:
        """Raises InvalidConfig if a listener cannot be served with these settings."""
        if not self.has_key:
            raise InvalidConfig(
                f"listener {listener} has TLS, but no certificate; set {KEYSTORE} to a PEM file with its private key "
                "and certificate chain, or make one with `penstock security certificates`"
            )
        if self.client_auth is not ClientAuth.NONE and not self.has_trust:
            raise InvalidConfig(
                f"listener {listener} has {CLIENT_AUTH}={self.client_auth}, but no trusted authority; set "
                f"{TRUSTSTORE} to a PEM file with the certificates of the authorities that sign those of clients"
            )


def listener_prefix(listener: str) -> str:
    """Returns the prefix of the settings of one listener.

    >>> listener_prefix("EXTERNAL")
    'listener.name.external.'
    """
    return f"listener.name.{listener.lower()}."


def listener_setting(name: str) -> Setting | None:
    """Returns the setting that `listener.name.NAME.SETTING` overrides; None if `name` is not of that form.

    >>> listener_setting("listener.name.external.ssl.key.password").name
    'ssl.key.password'
    """
    if not name.startswith("listener.name."):
        return None
    _, _, own = name.removeprefix("listener.name.").partition(".ssl.")
    return TLS_SETTINGS.by_name.get(f"ssl.{own}")


def _check_types(values: Mapping[str, str]) -> None:
    for store, file, text in (("keystore", KEYSTORE, KEY), ("truststore", TRUSTSTORE, TRUSTED)):
        kind = values[f"ssl.{store}.type"].upper()
        if kind != PEM:
            raise InvalidConfig(
                f"ssl.{store}.type={kind} is not supported; set it to {PEM}, and convert the file: {_CONVERT}"
            )
        if values[f"ssl.{store}.password"]:
            raise InvalidConfig(f"ssl.{store}.password is not for {PEM} files; remove it (a key has {KEY_PASSWORD})")
        if values[file] and values[text]:
            raise InvalidConfig(f"{file} and {text} exclude each other; remove one of them")
    if bool(values[KEY]) != bool(values[CHAIN]):
        raise InvalidConfig(f"{KEY} and {CHAIN} belong together; give both, or a file with both in {KEYSTORE}")


def _ciphers(versions: tuple[str, ...], suites: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the TLS versions that the suites allow, and OpenSSL's names of the suites of TLS 1.2."""
    if not suites:
        return versions, ()
    of_1_3 = [suite for suite in suites if suite in SUITES_OF_1_3]
    if of_1_3 and set(of_1_3) != set(SUITES_OF_1_3):
        raise InvalidConfig(
            f"{CIPHERS} has {len(of_1_3)} of the {len(SUITES_OF_1_3)} suites of {TLS_1_3}, among which Python cannot "
            f"choose; list all ({', '.join(SUITES_OF_1_3)}), or none to allow only {TLS_1_2}"
        )
    of_1_2 = tuple(_openssl_name(suite) for suite in suites if suite not in SUITES_OF_1_3)
    allowed = tuple(version for version in versions if (of_1_3 if version == TLS_1_3 else of_1_2))
    if not allowed:
        raise InvalidConfig(f"{CIPHERS} has no suite of {' or '.join(versions)}, which {VERSIONS} allows; add one")
    return allowed, of_1_2


def _openssl_name(suite: str) -> str:
    """Returns OpenSSL's name of a cipher suite of TLS 1.2. Names that are OpenSSL's already stay.

    >>> _openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    name = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return (name if exchange == "RSA" else f"{exchange}_{name}").replace("_", "-")
