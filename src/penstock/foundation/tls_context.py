"""TLS contexts of listeners and clients, built from PEM files or text, and rebuilt when the files change."""

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.tls_settings import (
    CHAIN,
    CIPHERS,
    KEY,
    KEY_PASSWORD,
    KEYSTORE,
    REVOKED,
    TLS_1_2,
    TLS_1_3,
    TRUSTED,
    TRUSTSTORE,
    ClientAuth,
    TlsSettings,
)

logger = logging.getLogger(__name__)

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_WRONG_PASSWORD: Final = f"the private key cannot be decrypted; is {KEY_PASSWORD} right?"
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"


class TlsContext:
    """The TLS context for new connections of a listener or a client."""

    def __init__(self, settings: TlsSettings, *, server_side: bool) -> None:
        """Reads the files. Raises InvalidConfig if they are missing or broken."""
        self.settings: Final = settings
        self._server_side = server_side
        self._seen = self._versions_of_files()
        self.current = self._build()

    def __reduce__(self) -> tuple[Callable[..., "TlsContext"], tuple[TlsSettings, bool]]:
        """Pickles the settings with the text of the files: other machines need not have them."""
        return _unpickled, (self.settings.with_texts(_read), self._server_side)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TlsContext) and (self.settings, self._server_side) == (
            other.settings,
            other._server_side,
        )

    def __hash__(self) -> int:
        return hash((self.settings, self._server_side))

    def reload(self) -> None:
        """Builds the context anew if a file has changed. If the new files are broken, logs the reason once and keeps
        the old context."""
        seen = self._versions_of_files()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.current = self._build()
        except (InvalidConfig, OSError) as error:
            logger.error("tls_files_not_reloaded reason=%r", f"{error}; the old certificates stay in use")
        else:
            logger.info("tls_files_reloaded files=%r", ", ".join(self._files()))

    def _files(self) -> list[str]:
        settings = self.settings
        return [file for file in (settings.keystore, settings.truststore, settings.revoked) if file]

    def _versions_of_files(self) -> tuple[tuple[int, ...], ...]:
        """Returns what changes if a file is written or replaced."""
        found: list[tuple[int, ...]] = []
        for file in self._files():
            try:
                status = os.stat(file)
            except OSError as error:
                found.append((error.errno or 0,))
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)

    def _build(self) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._server_side else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = min(_VERSIONS[version] for version in settings.versions)
        context.maximum_version = max(_VERSIONS[version] for version in settings.versions)
        _set_ciphers(context, settings.ciphers)
        if self._server_side:
            # Without tickets, every connection is checked against the current certificates.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
            context.verify_mode = _CLIENT_AUTH[settings.client_auth]
        else:
            context.check_hostname = settings.checks_host
        _load_key(context, settings)
        _load_trust(context, settings, with_default=not self._server_side)
        return context


def _unpickled(settings: TlsSettings, server_side: bool) -> TlsContext:
    return TlsContext(settings, server_side=server_side)


def _set_ciphers(context: ssl.SSLContext, ciphers: tuple[str, ...]) -> None:
    for name in ciphers:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise InvalidConfig(
                f"{CIPHERS} has {name}, which this machine's OpenSSL does not have; see `openssl ciphers`"
            ) from None
    if ciphers:
        context.set_ciphers(":".join(ciphers))


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Loads the private key and the certificate chain, which OpenSSL reads from a file only."""
    if not settings.has_key:
        return
    where = settings.keystore or f"{KEY} and {CHAIN}"
    text = _read(KEYSTORE, settings.keystore) if settings.keystore else f"{settings.key}\n{settings.chain}\n"
    for mark, what in ((_CERTIFICATE, "certificate"), ("PRIVATE KEY-----", "private key")):
        if mark not in text:
            raise InvalidConfig(f"{where}: there is no {what} in PEM format; expected a key and its certificates")
    try:
        with _file_in_memory(text) as path:
            # Always with a password: without one, OpenSSL would ask for it on the terminal.
            context.load_cert_chain(path, password=lambda: settings.key_password)
    except ssl.SSLError as error:
        # OpenSSL gives no reason if the password is empty.
        is_sealed = not error.reason and "ENCRYPTED" in text
        raise InvalidConfig(f"{where}: {_WRONG_PASSWORD if is_sealed else _explain(error)}") from None
    except ValueError:
        raise InvalidConfig(f"{where}: the password in {KEY_PASSWORD} is too long") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings, *, with_default: bool) -> None:
    """Loads the certificates of trusted authorities; `with_default`: those of the system if none are given."""
    if settings.has_trust:
        where = settings.truststore or TRUSTED
        text = _read(TRUSTSTORE, settings.truststore) if settings.truststore else settings.trusted
        if _CERTIFICATE not in text:
            raise InvalidConfig(f"{where}: there is no certificate in PEM format")
        try:
            context.load_verify_locations(cadata=text)
        except ssl.SSLError as error:
            raise InvalidConfig(f"{where}: {_explain(error)}") from None
    elif with_default:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.revoked:
        _read(REVOKED, settings.revoked)
        try:
            context.load_verify_locations(cafile=settings.revoked)
        except ssl.SSLError as error:
            raise InvalidConfig(f"{settings.revoked}: {_explain(error)}; expected revocation lists") from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(setting: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"{setting}: cannot read {file}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError:
        raise InvalidConfig(
            f"{setting}: {file} is not a PEM file; convert it: openssl pkcs12 -in {file} -out store.pem -noenc"
        ) from None


def _explain(error: ssl.SSLError) -> str:
    """Returns the reason in words, without anything from the file."""
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if reason == "key values mismatch":
        return "the private key does not belong to the first certificate"
    if "decrypt" in reason or "password" in reason or "cipherfinal" in reason:
        return _WRONG_PASSWORD
    return f"it cannot be loaded ({reason})"


@contextlib.contextmanager
def _file_in_memory(text: str) -> Iterator[str]:
    """Yields the path of a file with this text that never reaches a disk, if the system can do that."""
    file: IO[bytes]
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("penstock-tls"), "wb", buffering=0)
        path = f"/proc/self/fd/{file.fileno()}"
    else:
        file = tempfile.NamedTemporaryFile(buffering=0)  # noqa: SIM115
        path = file.name
    with file:
        file.write(text.encode())
        yield path
