"""The file of `--credentials`: read when the broker starts, and again when it is told to."""

from pathlib import Path

from penstock.security.credentials import Credentials, parse_credentials
from penstock.security.errors import InvalidCredentials


def read_credentials(file: Path) -> Credentials:
    """The keys in a file. Raises InvalidCredentials, which says what is wrong and where."""
    try:
        return parse_credentials(file.read_text())
    except OSError as error:
        raise InvalidCredentials(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidCredentials(f"{file} is not text in UTF-8") from error
    except InvalidCredentials as error:
        raise InvalidCredentials(f"{file}: {error}") from error
