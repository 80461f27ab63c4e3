"""Reads the --credentials file, when the broker starts and again on SIGHUP."""

from pathlib import Path

from penstock.security.credentials import Credentials, parse_credentials
from penstock.security.errors import InvalidCredentials


def read_credentials(file: Path) -> Credentials:
    """Returns the access keys in a file. Raises InvalidCredentials, which names the file and the problem."""
    try:
        return parse_credentials(file.read_text())
    except OSError as error:
        raise InvalidCredentials(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidCredentials(f"{file} is not UTF-8 text") from error
    except InvalidCredentials as error:
        raise InvalidCredentials(f"{file}: {error}") from error
