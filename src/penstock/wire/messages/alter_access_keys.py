"""Penstock's API 30051, AlterAccessKeys: deletes, disables or enables access keys, or encrypts them anew."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Int8, Int16, Int32, String, field, request, response

DELETE: Final = 0
"""Action: delete the access key `access_key`."""
DISABLE: Final = 1
"""Action: disable the access key `access_key`."""
ENABLE: Final = 2
"""Action: enable the access key `access_key`."""
DELETE_ALL: Final = 3
"""Action: delete all access keys of the user `user`."""
REENCRYPT: Final = 4
"""Action: encrypt all access keys with the first secret key of the broker."""


@request(ApiKey.ALTER_ACCESS_KEYS, versions="0", flexible="0+")
class AlterAccessKeysRequest:
    action: Int8
    access_key: String | None = field(default=None)
    user: String | None = field(default=None)


@response(ApiKey.ALTER_ACCESS_KEYS, versions="0", flexible="0+")
class AlterAccessKeysResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
