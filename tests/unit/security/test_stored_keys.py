"""Access keys of the store on one broker: encryption, what is decrypted when, and when signatures are demanded."""

import logging
from base64 import b64encode
from dataclasses import dataclass, replace

import pytest

from penstock.foundation.access_key_settings import SECRET_KEYS_MAX, SQS_SECRET_KEY, read_secret_keys, secret_key_text
from penstock.foundation.errors import InvalidConfig
from penstock.security.credentials import AccessKey, Credentials
from penstock.security.key_ring import KeyRing
from penstock.security.secret_cipher import SecretCipher
from penstock.security.stored_keys import StoredKeys, new_access_key, new_secret

KEY, OTHER = bytes(32), bytes([1] * 32)
SECRET = "a secret"


@dataclass(frozen=True)
class Stored:
    access_key: str
    user: str = "orders"
    secret: str = ""
    cipher: str = ""
    owner: str = "000000000000"
    actions: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    subjects: tuple[str, ...] = ("*",)
    is_enabled: bool = True


def stored(name: str, key: bytes = KEY, user: str = "orders") -> Stored:
    cipher = SecretCipher(key)
    return Stored(name, user, cipher.encrypt(SECRET, name, user), cipher.fingerprint)


class Image:
    """The access keys in a metadata image, by user."""

    def __init__(self, *found: Stored) -> None:
        self.keys: dict[str, tuple[Stored, ...]] = {}
        self.set(*found)

    def set(self, *found: Stored) -> None:
        self.keys = {"orders": found} if found else {}


def test_a_secret_is_bound_to_its_access_key_and_user() -> None:
    cipher = SecretCipher(KEY)
    text = cipher.encrypt(SECRET, "AKIA1", "ann")
    assert cipher.decrypt(text, "AKIA1", "ann") == SECRET
    assert cipher.encrypt(SECRET, "AKIA1", "ann") != text, "each encryption has its own nonce"
    for changed in (
        cipher.decrypt(text, "AKIA2", "ann"),
        cipher.decrypt(text, "AKIA1", "bob"),
        cipher.decrypt(text[:-4] + "AAAA", "AKIA1", "ann"),
        cipher.decrypt("", "AKIA1", "ann"),
        cipher.decrypt("%", "AKIA1", "ann"),
        cipher.decrypt(b64encode(b"short").decode(), "AKIA1", "ann"),
        SecretCipher(OTHER).decrypt(text, "AKIA1", "ann"),
    ):
        assert changed is None
    assert SecretCipher(OTHER).fingerprint != cipher.fingerprint == SecretCipher(KEY).fingerprint


def test_the_secret_key_is_read_from_settings() -> None:
    assert read_secret_keys({}) == ()
    assert read_secret_keys({SQS_SECRET_KEY: "  "}) == ()
    assert read_secret_keys({SQS_SECRET_KEY: f"{secret_key_text(KEY)}\n"}) == (KEY,)
    both = f"{secret_key_text(KEY)}, {secret_key_text(OTHER)}"
    assert read_secret_keys({SQS_SECRET_KEY: both}) == (KEY, OTHER)
    with pytest.raises(InvalidConfig, match="at most"):
        read_secret_keys({SQS_SECRET_KEY: ",".join([secret_key_text(KEY)] * (SECRET_KEYS_MAX + 1))})
    for text in ("not a key", "\u00e9\u00e9", secret_key_text(bytes(31)), secret_key_text(bytes(33))):
        with pytest.raises(InvalidConfig, match=r"is not 32 bytes in base64; `penstock security key") as raised:
            read_secret_keys({SQS_SECRET_KEY: text})
        assert text not in str(raised.value)


def test_keys_follow_the_image() -> None:
    image = Image()
    keys = StoredKeys((KEY,), lambda: image.keys)
    assert keys.find("AKIA1") is None
    first = stored("AKIA1")
    image.set(first)
    found = keys.find("AKIA1")
    assert found is not None
    assert (found.secret, found.owner) == (SECRET, "000000000000")
    assert keys.find("AKIA1") is found, "it is decrypted once"
    image.set(first, stored("AKIA2"))
    assert keys.find("AKIA1") is found
    assert keys.find("AKIA2") is not None
    image.set(replace(first, is_enabled=False))
    assert keys.find("AKIA1") is None
    image.set(replace(first, queues=("orders-*",)))
    changed = keys.find("AKIA1")
    assert changed is not None
    assert not changed.may_use("bank")
    image.set()
    assert keys.find("AKIA1") is None
    image.set(first)
    assert keys.find("AKIA1") == found


def test_a_damaged_key_that_is_created_again_can_be_used() -> None:
    image = Image(replace(stored("AKIA1"), secret="damaged"))
    keys = StoredKeys((KEY,), lambda: image.keys)
    assert keys.find("AKIA1") is None
    image.set()
    keys.follow()
    image.set(stored("AKIA1"))
    assert keys.find("AKIA1") is not None


def test_signatures_are_demanded_from_the_first_key_on() -> None:
    image = Image()
    assert StoredKeys((KEY,), lambda: image.keys).is_required
    keys = StoredKeys((), lambda: image.keys)
    assert not keys.is_required
    image.set(stored("AKIA1"))
    assert keys.is_required
    image.set()
    assert keys.is_required, "the deletion of the last key opens nothing"
    assert not StoredKeys((), lambda: image.keys).is_required


@pytest.mark.parametrize(
    ("key", "reason", "log"),
    [(None, "is not set", "is not set; set the one"), (OTHER, "differs from the one", "differs; set the one")],
)
def test_keys_that_cannot_be_decrypted_are_logged_once(
    caplog: pytest.LogCaptureFixture, key: bytes | None, reason: str, log: str
) -> None:
    image = Image(stored("AKIA1"))
    keys = StoredKeys(() if key is None else (key,), lambda: image.keys)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert keys.find("AKIA1") is None
            assert reason in keys.refusal("AKIA1")
        assert keys.refusal("AKIA2") == ""
        image.set(*image.keys["orders"], stored("AKIA2"))
        keys.follow()
    assert [record.getMessage().split()[:3] for record in caplog.records] == [
        ["access_keys_are_unusable", "keys=AKIA1", "count=1"],
        ["access_keys_are_unusable", "keys=AKIA2", "count=1"],
    ]
    assert log in caplog.text
    if key is None:
        with pytest.raises(InvalidConfig, match="`penstock security key FILE` makes one"):
            _ = keys.cipher


def test_a_damaged_key_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    image = Image(replace(stored("AKIA1"), user="eve"))
    keys = StoredKeys((KEY,), lambda: image.keys)
    for _ in range(3):
        assert keys.find("AKIA1") is None
    assert [record.getMessage().split()[0] for record in caplog.records] == ["access_key_is_damaged"]


@pytest.mark.parametrize(
    ("listener", "host", "is_allowed"),
    [
        ("PLAIN", "/127.0.0.1", True),
        ("PLAIN", "/127.8.9.1", True),
        ("PLAIN", "/::1", True),
        ("PLAIN", "/::ffff:127.0.0.1", True),
        ("PLAIN", "/192.0.2.7", False),
        ("PLAIN", "/::ffff:192.0.2.7", False),
        ("PLAIN", "/0.0.0.0", False),
        ("PLAIN", "/?", False),
        ("PLAIN", "", False),
        ("TLS", "/192.0.2.7", True),
    ],
)
def test_secrets_are_sent_only_where_no_other_machine_reads_them(listener: str, host: str, is_allowed: bool) -> None:
    keys = StoredKeys((KEY,), lambda: {}, frozenset({"TLS"}))
    assert keys.may_send_secret(listener, host) is is_allowed


def test_the_keys_of_a_file_and_of_the_store_are_both_accepted() -> None:
    image = Image(stored("AKIA1"), stored("AKIA2"))
    file = Credentials(keys={"AKIA1": AccessKey(access_key="AKIA1", secret="of the file")})
    ring = KeyRing(file, StoredKeys((KEY,), lambda: image.keys))
    found = {name: key.secret for name in ("AKIA1", "AKIA2", "AKIA3") if (key := ring.find(name)) is not None}
    assert found == {"AKIA1": "of the file", "AKIA2": SECRET}
    assert ring.is_required
    ring.file = Credentials()
    second = ring.find("AKIA1")
    assert second is not None
    assert second.secret == SECRET
    assert not KeyRing(None, None).is_required
    assert KeyRing(Credentials(), None).is_required
    assert (KeyRing(None, None).find("AKIA1"), KeyRing(None, None).refusal("AKIA1")) == (None, "")


def test_new_keys_look_like_those_of_aws() -> None:
    made = {new_access_key() for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) == 20 and each.startswith("AKIA") and each.isalnum() and each.isupper() for each in made)
    assert len(new_secret()) == 40
