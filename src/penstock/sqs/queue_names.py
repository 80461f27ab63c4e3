"""Queue names, URLs and ARNs: parses and builds the forms in which clients name a queue.

The host of a queue URL is ignored: it may be that of any load balancer. See namespaces.py for accounts and regions.
"""

import re
from typing import Final, NamedTuple

from penstock.sqs import errors
from penstock.sqs.limits import ARN_CHARS_MAX, QUEUE_NAME_CHARS_MAX

ACCOUNT: Final = "000000000000"
"""Id of the default account inside Penstock; clients see the value of the setting `sqs.account.id` instead."""
REGION: Final = "us-east-1"
"""Default of the setting `sqs.region`: the region of requests that name none."""
FIFO_SUFFIX: Final = ".fifo"
_URL_END_CHARS: Final = 1024
"""Number of characters at the end of a queue URL that are parsed: enough for the longest account and name."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_QUEUE_PATH: Final = re.compile(r"/[0-9]{12}/[A-Za-z0-9_-]+(\.fifo)?")
_ARN: Final = re.compile(r"arn:[a-z-]+:sqs:([A-Za-z0-9-]*):([A-Za-z0-9_-]*):(.+)")


def check_name(name: str, is_fifo: bool) -> None:
    """Raises InvalidParameterValue unless a new queue's name follows AWS's rules."""
    if is_fifo and not name.endswith(FIFO_SUFFIX):
        raise errors.invalid_value(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end "
            f"with {FIFO_SUFFIX} suffix and be 1 to {QUEUE_NAME_CHARS_MAX} in length"
        )
    matched = _NAME.fullmatch(name) if len(name) <= QUEUE_NAME_CHARS_MAX else None
    if matched is None or bool(matched[1]) != is_fifo:
        raise errors.invalid_value(
            "Can only include alphanumeric characters, hyphens, or underscores. "
            f"1 to {QUEUE_NAME_CHARS_MAX} in length"
        )


def name_in_url(url: str) -> str:
    """Returns the queue name in a queue URL: the last part of its path. A plain name is returned unchanged.

    >>> name_in_url("https://sqs.eu-west-1.amazonaws.com/111122223333/jobs")
    'jobs'
    """
    return split_url(url)[1]


def split_url(url: str) -> tuple[str, str]:
    """Returns the last two parts of a queue URL's path: account (any text; "" if missing) and queue name.

    >>> split_url("https://sqs.eu-west-1.amazonaws.com/111122223333/jobs"), split_url("jobs")
    (('111122223333', 'jobs'), ('', 'jobs'))
    """
    before, _, name = url[-_URL_END_CHARS:].rstrip("/").rpartition("/")
    return before.rpartition("/")[2], name


def is_queue_path(path: str) -> bool:
    """Whether a URL path has the form of a queue URL: /ACCOUNT/NAME."""
    return len(path) <= _URL_END_CHARS and _QUEUE_PATH.fullmatch(path) is not None


def url_of(host: str, scheme: str, account: str, name: str) -> str:
    return f"{scheme}://{host}/{account}/{name}"


def account_of(owner: str, default: str) -> str:
    """Returns the account id that clients see: `default` if `owner` is the default account or not a 12-digit id."""
    return owner if owner != ACCOUNT and _ACCOUNT.fullmatch(owner) else default


def arn_of(region: str, account: str, name: str) -> str:
    return f"arn:aws:sqs:{region}:{account}:{name}"


class ArnParts(NamedTuple):
    """Region, account and queue name in a queue's ARN."""

    region: str
    account: str
    name: str


def parts_of_arn(arn: str) -> ArnParts | None:
    """Returns the parts of a queue's ARN; None if the text is not the ARN of a queue."""
    matched = _ARN.fullmatch(arn) if len(arn) <= ARN_CHARS_MAX else None
    return ArnParts(matched[1], matched[2], matched[3]) if matched else None


def name_in_arn(arn: str) -> str | None:
    """Returns the queue name in an ARN; None if the text is not the ARN of a queue."""
    parts = parts_of_arn(arn)
    return None if parts is None else parts.name
