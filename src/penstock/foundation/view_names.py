"""How views are asked for: settings of a new topic, for any client. Names of those that are made for one reader."""

import re
from hashlib import sha256
from typing import Final

from penstock.foundation.ids import TOPIC_NAME_CHARS_MAX

VIEW_OF: Final = "view.of"
VIEW_WHERE: Final = "view.where"
VIEW_IDLE_MS: Final = "view.idle.ms"
AD_HOC: Final = re.compile(r".*\.where-[0-9a-f]{16}")
"""Names of views that are made for a reader and go with it. No topic is made by being asked for under one."""
_SUFFIX_CHARS: Final = len(".where-") + 16


def ad_hoc_name(topic: str, where: str) -> str:
    """The name of the view of a topic that somebody reads through a condition: the same for the same condition.

    >>> ad_hoc_name("orders", "tag = 'eu'")
    'orders.where-a1c7cda25c12b412'
    """
    digest = sha256(f"{topic}\0{where}".encode()).hexdigest()[:16]
    return f"{topic[: TOPIC_NAME_CHARS_MAX - _SUFFIX_CHARS]}.where-{digest}"
