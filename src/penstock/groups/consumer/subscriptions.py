"""Subscriptions of a consumer group: topic names, and regular expressions that the broker resolves (KIP-848)."""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.errors import InvalidRegularExpression
from penstock.foundation.patterns import Pattern

REGEXES_MAX: Final = 100
"""Maximum number of regular expressions in one group; each is matched against every topic name."""
NAMES_MAX: Final = 1_000_000
"""Maximum number of topic names in the subscriptions of one group, summed over its members."""


class TopicPattern:
    """A regular expression in RE2's syntax, which is what Kafka's clients send.

    Matching takes time linear in the length of the topic name, so that no expression can stall the broker. Each topic
    name is matched once: when topics change, only new topics are matched.
    """

    def __init__(self, text: str) -> None:
        self._pattern = Pattern(text)
        self._text = text
        self._seen: Mapping[str, Topic] = {}
        """The `topics` of the last call of `matching`: the same object, not a copy."""
        self._matched: frozenset[str] = frozenset()

    def matching(self, topics: Mapping[str, Topic]) -> frozenset[str]:
        """Returns the names of the topics whose whole name matches the regular expression."""
        if topics is not self._seen:
            seen = self._seen
            kept = [name for name in self._matched if name in topics]
            found = [name for name, topic in topics.items() if name not in seen and self._matches(topic)]
            if found or len(kept) < len(self._matched):
                self._matched = frozenset((*kept, *found))
            self._seen = topics
        return self._matched

    def _matches(self, topic: Topic) -> bool:
        # A group that subscribes to `.*` must not read its own commits endlessly.
        if topic.is_internal:
            return topic.name == self._text
        return self._pattern.matches(topic.name)


class Patterns:
    """A cache of the compiled regular expressions of one group."""

    def __init__(self) -> None:
        self._by_text: dict[str, TopicPattern | None] = {}

    def check(self, text: str) -> None:
        """Raises InvalidRegularExpression if `text` is not a valid regular expression."""
        if self._by_text.get(text) is None:
            self._by_text[text] = TopicPattern(text)

    def resolve(self, texts: Collection[str], topics: Mapping[str, Topic]) -> dict[str, frozenset[str]]:
        """Returns the names of the topics that match each of `texts`; drops all other expressions from the cache."""
        self._by_text = {text: self._by_text.get(text) or _read(text) for text in texts}
        return {
            text: pattern.matching(topics) if pattern is not None else frozenset()
            for text, pattern in self._by_text.items()
        }


def _read(text: str) -> TopicPattern | None:
    try:
        return TopicPattern(text)
    except InvalidRegularExpression:
        return None  # replayed from a broker with other limits: it matches nothing


def metadata_hash(names: Iterable[str], image: ClusterImage) -> int:
    """Returns a hash that changes when a topic in `names` is created, deleted or gets more partitions; 0 if no
    topic exists (KIP-1101). Racks are not hashed, since no assignor uses them."""
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = image.shown_by_name.get(name)
        if topic is not None:
            found = True
            digest.update(topic.topic_id)
            digest.update(f"{len(name)}:{name}:{len(topic.partitions)};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
