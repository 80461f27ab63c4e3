"""Checks the number and length of queue tags."""

from collections.abc import Iterable, Mapping

from penstock.sqs import errors
from penstock.sqs.limits import TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX


def check_tags(tags: Mapping[str, str], before: Iterable[str] = ()) -> None:
    count = len({*before, *tags})
    if count > TAGS_MAX:
        raise errors.invalid_value(f"A queue has at most {TAGS_MAX} tags, and would have {count}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX:
            raise errors.invalid_value(f"Tag keys must be between 1 and {TAG_KEY_CHARS_MAX} characters in length.")
        if len(value) > TAG_VALUE_CHARS_MAX:
            raise errors.invalid_value(f"Tag values can have at most {TAG_VALUE_CHARS_MAX} characters.")
