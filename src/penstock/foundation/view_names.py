"""Topic settings that define a view (filtered virtual topic), and the names of views that subscriptions create."""

import re
from hashlib import sha256
from typing import Final

from penstock.foundation.ids import TOPIC_NAME_CHARS_MAX

VIEW_OF: Final = "view.of"
VIEW_WHERE: Final = "view.where"
VIEW_IDLE_MS: Final = "view.idle.ms"
AD_HOC: Final = re.compile(r".*\.where-[0-9a-f]{16}")
"""Pattern of the names of ad-hoc views (filtered topics made for one reader). Such topics are not auto-created."""
_SUFFIX_CHARS: Final = len(".where-") + 16


def ad_hoc_name(topic: str, where: str) -> str:
    """Returns the name of the view (filtered topic) that a subscription to `topic` with condition `where` creates.

    >>> ad_hoc_name("orders", "tag = 'eu'")
    'orders.where-a1c7cda25c12b412'
    """
    digest = sha256(f"{topic}\0{where}".encode()).hexdigest()[:16]
    return f"{topic[: TOPIC_NAME_CHARS_MAX - _SUFFIX_CHARS]}.where-{digest}"
