"""What a group subscribes to: names, and regular expressions that the broker resolves (KIP-848)."""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.errors import InvalidRegularExpression
from penstock.foundation.patterns import Pattern

EXPRESSIONS_MAX: Final = 100
"""Of one group. Each of them is matched with each topic."""
NAMES_MAX: Final = 1_000_000
"""Of the topics that the members of one group subscribe to, all together."""


class TopicPattern:
    """A regular expression in RE2's syntax, which is what Kafka's clients send.

    Matching takes time linear in the name, whatever the expression says: nobody can stall the broker with one.
    A name is matched once; when topics change, only the new ones are looked at.
    """

    def __init__(self, text: str) -> None:
        self._pattern = Pattern(text)
        self._text = text
        self._seen: Mapping[str, Topic] = {}
        """The topics that were looked at last. All expressions share them."""
        self._matched: frozenset[str] = frozenset()

    def matching(self, topics: Mapping[str, Topic]) -> frozenset[str]:
        """Those whose whole name matches."""
        if topics is not self._seen:
            seen = self._seen
            kept = [name for name in self._matched if name in topics]
            found = [name for name, topic in topics.items() if name not in seen and self._matches(topic)]
            if found or len(kept) < len(self._matched):
                self._matched = frozenset((*kept, *found))
            self._seen = topics
        return self._matched

    def _matches(self, topic: Topic) -> bool:
        # A group that reads `.*` must not read its own commits, which would never end.
        if topic.is_internal:
            return topic.name == self._text
        return self._pattern.matches(topic.name)


class Patterns:
    """The expressions of one group, each compiled once. Remembers nothing that cannot be worked out again."""

    def __init__(self) -> None:
        self._by_text: dict[str, TopicPattern | None] = {}

    def check(self, text: str) -> None:
        """Raises InvalidRegularExpression."""
        if self._by_text.get(text) is None:
            self._by_text[text] = TopicPattern(text)

    def resolve(self, texts: Collection[str], topics: Mapping[str, Topic]) -> dict[str, frozenset[str]]:
        """The topics that match each. What is not asked for is forgotten."""
        self._by_text = {text: self._by_text.get(text) or _read(text) for text in texts}
        return {
            text: pattern.matching(topics) if pattern is not None else frozenset()
            for text, pattern in self._by_text.items()
        }


def _read(text: str) -> TopicPattern | None:
    try:
        return TopicPattern(text)
    except InvalidRegularExpression:
        return None  # read back from the log, where a broker with other bounds has written it: it matches nothing


def metadata_hash(names: Iterable[str], image: ClusterImage) -> int:
    """A number that changes when one of the topics comes, goes or grows; 0 if there are none (KIP-1101).

    Racks are not part of it: none of the assignors looks at them.
    """
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = image.shown_by_name.get(name)
        if topic is not None:
            found = True
            digest.update(topic.topic_id)
            digest.update(f"{len(name)}:{name}:{len(topic.partitions)};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
