"""`penstock security`: makes certificates for TLS in development, and keys that encrypt secrets."""

import os
import re
import secrets
from pathlib import Path
from typing import Final

import click

from penstock.foundation.access_key_settings import KEY_BYTES, SQS_SECRET_KEY, secret_key_text

DAYS: Final = 365
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_RESERVED: Final = ("ca", "ca-key", "server")
_PROPERTIES: Final = """\
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
ssl.keystore.type=PEM
ssl.keystore.location={folder}/{name}.pem
"""


@click.group()
def security() -> None:
    """Make certificates for TLS, and the key that encrypts access keys.

    \b
    Examples:
      penstock security certificates certificates --host queue.example.org
      penstock security key sqs-secret-key
    """


@security.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name or IP address of brokers. Repeatable.  [localhost and 127.0.0.1]",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    default=("client",),
    show_default=True,
    help="A client that gets a certificate of this name. Repeatable.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=DAYS, show_default=True, help="Days of validity.")
@click.option("--renew", is_flag=True, help="Replace existing certificates of server and clients.")
def certificates(folder: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int, renew: bool) -> None:
    """Make a development CA, and certificates for brokers and clients, in FOLDER.

    The CA in FOLDER is used again if there is one. Files with keys are readable by their owner only. With
    ca-key.pem, a person can make certificates that brokers and clients trust: for production, use your own CA.

    \b
    Examples:
      penstock security certificates certificates --host queue.example.org --host 10.0.0.7
      penstock security certificates certificates --client orders --client billing
      penstock security certificates certificates --host queue.example.org --renew
    """
    for name in clients:
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise click.BadParameter(
                f"{name!r} is not allowed; expected letters, digits, dots and hyphens, and none of "
                f"{', '.join(_RESERVED)}",
                param_hint="--client",
            )
    try:
        from penstock.cli.security.certificates import AUTHORITY, AUTHORITY_KEY, Authority, write_secret
    except ImportError as error:
        raise click.ClickException("this command needs cryptography; pip install 'penstock[security]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    try:
        authority = Authority.read(folder)
    except FileNotFoundError:
        if (folder / AUTHORITY).exists():
            raise click.ClickException(
                f"{folder} has {AUTHORITY}, but not {AUTHORITY_KEY}; without that key no certificate can be made: "
                "give another folder"
            ) from None
        authority = Authority.create("Penstock development CA")
        authority.save(folder)
        click.echo(f"{folder / AUTHORITY}  the CA; brokers and clients need it as ssl.truststore.location")
    except ValueError as error:
        raise click.ClickException(f"{folder / AUTHORITY_KEY} cannot be read: {error}") from error
    made = [("server", "localhost", hosts or ("localhost", "127.0.0.1")), *((name, name, ()) for name in clients)]
    for stem, name, of in made:
        file = folder / f"{stem}.pem"
        if file.exists() and not renew:
            click.echo(f"{file}  exists; --renew replaces it", err=True)
            continue
        write_secret(file, authority.issue(hosts[0] if stem == "server" and hosts else name, of, days))
        text = f"brokers need it as ssl.keystore.location; for {', '.join(of)}" if of else "a client's certificate"
        click.echo(f"{file}  {text}")
        if not of:
            properties = folder / f"{stem}.properties"
            properties.write_text(_PROPERTIES.format(folder=folder.resolve(), name=stem))
            click.echo(f"{properties}  for --command-config")


@security.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def key(file: Path) -> None:
    """Make a random key in FILE, with which brokers encrypt the secrets of access keys (sqs.secret.key).

    All brokers need the same key. Keep a copy: without it, the access keys in the metadata store are lost. The file
    is readable by its owner only, and is never replaced.

    \b
    Example:
      penstock security key sqs-secret-key
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise click.ClickException(
            f"{file} exists; access keys may be encrypted with it, so it is not replaced: give another file"
        ) from error
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {(error.strerror or str(error)).lower()}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(secret_key_text(secrets.token_bytes(KEY_BYTES)) + "\n")
    click.echo(f"{file}  brokers need it as {SQS_SECRET_KEY}=${{file:{file.resolve()}}}")
