"""Certificates for tests: good ones, and those that must be refused."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import (
    CertificateRevocationListBuilder,
    RevokedCertificateBuilder,
    load_pem_x509_certificate,
)

from penstock.cli.security.certificates import Authority, write_secret

LOCAL = ("localhost", "127.0.0.1")
PASSWORD = "correct-horse"


class Certificates:
    """An authority, and PEM files with keys and certificates that it has issued."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.authority = Authority.create(name)
        self.authority.save(folder)
        self.trust = folder / "ca.pem"

    def issue(self, name: str, hosts: tuple[str, ...] = (), days: float = 1) -> Path:
        """Returns a new file with a key and its certificate; expired if `days` is negative (more than -0.04)."""
        file = self._folder / f"{name}.pem"
        write_secret(file, self.authority.issue(name, hosts, days))
        return file

    def server(self, name: str = "server") -> Path:
        return self.issue(name, LOCAL)

    def encrypted(self, name: str, hosts: tuple[str, ...] = ()) -> Path:
        """Returns a file whose key is encrypted with PASSWORD."""
        pem = self.authority.issue(name, hosts, 1)
        key = serialization.load_pem_private_key(pem, None)
        sealed = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
        file = self._folder / f"{name}.pem"
        write_secret(file, sealed + load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.PEM))
        return file

    def revocations(self, *files: Path) -> Path:
        """Writes the authority's revocation list with the certificates in these files; returns its file."""
        now = datetime.now(UTC)
        builder = CertificateRevocationListBuilder(
            issuer_name=self.authority.certificate.subject,
            last_update=now - timedelta(hours=1),
            next_update=now + timedelta(days=1),
        )
        for file in files:
            number = load_pem_x509_certificate(file.read_bytes()).serial_number
            revoked = RevokedCertificateBuilder(serial_number=number, revocation_date=now).build()
            builder = builder.add_revoked_certificate(revoked)
        made = builder.sign(self.authority.key, hashes.SHA256())
        file = self._folder / "revoked.pem"
        write_secret(file, made.public_bytes(serialization.Encoding.PEM))
        return file

    def self_signed(self) -> Path:
        """Returns a file with the key and the certificate of an authority that no one trusts."""
        other = self._folder / "stranger"
        stranger = Certificates(other, "Stranger")
        file = self._folder / "self-signed.pem"
        write_secret(file, (other / "ca-key.pem").read_bytes() + stranger.trust.read_bytes())
        return file


def properties(trust: Path, keystore: Path | None = None, **more: str) -> dict[str, str]:
    """Returns Kafka's client properties for TLS; `more`: with `_` for `.`."""
    found = {"security.protocol": "SSL", "ssl.truststore.location": str(trust)}
    if keystore is not None:
        found["ssl.keystore.location"] = str(keystore)
    return found | {name.replace("_", "."): value for name, value in more.items()}


def librdkafka(trust: Path, keystore: Path | None = None) -> dict[str, str]:
    """Returns the same for confluent-kafka."""
    found = {"security.protocol": "SSL", "ssl.ca.location": str(trust)}
    if keystore is not None:
        found |= {"ssl.certificate.location": str(keystore), "ssl.key.location": str(keystore)}
    return found
