"""The access keys that a broker accepts: those of its --credentials file, and those of the store."""

from penstock.security.credentials import AccessKey, Credentials
from penstock.security.stored_keys import StoredKeys


class KeyRing:
    """Access keys of a file and of the store. A key of the file hides one of the same name in the store."""

    def __init__(self, file: Credentials | None, stored: StoredKeys | None) -> None:
        """`file`: None if the broker has no --credentials."""
        self.file = file
        self._stored = stored

    @property
    def is_required(self) -> bool:
        """Whether requests must be signed."""
        return self.file is not None or (self._stored is not None and self._stored.is_required)

    def find(self, access_key: str) -> AccessKey | None:
        found = None if self.file is None else self.file.find(access_key)
        return found if found is not None or self._stored is None else self._stored.find(access_key)

    def refusal(self, access_key: str) -> str:
        """Returns why a key cannot be used though it exists; empty if it does not."""
        return "" if self._stored is None else self._stored.refusal(access_key)
