"""Names of subjects and contexts: `orders-value`, or `:.staging:orders-value` in the context `.staging`."""

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""A context whose config and mode apply to all contexts that have none of their own."""
ANY_CONTEXT: Final = "*"
"""The context in a prefix such as `:*:orders`, which matches subjects of all contexts."""
_OPEN: Final = ":."
_ANY_PREFIX: Final = ":*:"
_RESERVED: Final = frozenset(("__GLOBAL", "__EMPTY"))
SUBJECT_CHARS_MAX: Final = 4096
"""Maximum length of a subject with its context. Confluent's registry has none; keys of 64 KB are abuse."""


class Subject(NamedTuple):
    """A subject and its context.

    >>> Subject.parse(":.staging:orders-value")
    Subject(context='.staging', name='orders-value')
    >>> str(Subject.parse(":.:orders-value"))
    'orders-value'
    """

    context: str
    name: str
    """The subject without its context; empty if all subjects of the context are meant."""

    @classmethod
    def parse(cls, text: str) -> "Subject":
        if text.startswith(_OPEN):
            context, _, name = text[1:].partition(":")
            return cls(context, name)
        if text.startswith(_ANY_PREFIX):
            return cls(ANY_CONTEXT, text[len(_ANY_PREFIX) :])
        return cls(DEFAULT_CONTEXT, text)

    def __str__(self) -> str:
        """The subject as it is stored and shown: without the default context."""
        return self.context_prefix + self.name

    @property
    def context_prefix(self) -> str:
        """The context as a prefix of subjects, such as `:.staging:`; "" for the default context."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    @property
    def is_default_context(self) -> bool:
        """Whether this means the default context as a whole, not one subject."""
        return self.context == DEFAULT_CONTEXT and not self.name

    @property
    def is_global_context(self) -> bool:
        return self.context == GLOBAL_CONTEXT and not self.name

    def contains(self, other: "Subject") -> bool:
        """Whether `other` is this subject, or one of this context if this has no name."""
        if self.name:
            return self == other
        return self.context in (other.context, GLOBAL_CONTEXT)

    def resolve(self, reference: str) -> "Subject":
        """Returns the subject that a reference in a schema of this subject means: without a context of its own, it
        is in the same context."""
        found = Subject.parse(reference)
        return found._replace(context=self.context) if found.context == DEFAULT_CONTEXT else found


def normalize(text: str) -> str:
    """Returns a subject as it is stored: without a prefix for the default context."""
    return str(Subject.parse(text))


def normalize_context(name: str) -> str:
    """Returns the prefix of a context's subjects, given its name with or without the dot and the colons. Raises
    ValueError if the name contains a colon.

    >>> normalize_context("staging"), normalize_context(":.staging:"), normalize_context(".")
    (':.staging:', ':.staging:', '')
    """
    bare = name.removeprefix(":").removesuffix(":")
    if ":" in bare:
        raise ValueError(f"Context name '{name}' cannot contain a colon")
    if not bare.startswith("."):
        bare = "." + bare
    return "" if bare == DEFAULT_CONTEXT else f":{bare}:"


def is_valid(text: str, *, is_setting: bool = False) -> bool:
    """Returns whether a subject may be created. `is_setting`: it names the scope of a config or mode, which may be a
    whole context, and the global one."""
    subject = Subject.parse(text)
    if len(text) > SUBJECT_CHARS_MAX or any(char < " " or "\x7f" <= char <= "\x9f" for char in text):
        return False
    if subject.name in _RESERVED or subject.context == ANY_CONTEXT:
        return False
    return is_setting or (bool(subject.name) and subject.context != GLOBAL_CONTEXT)
