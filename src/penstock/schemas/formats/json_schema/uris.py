"""URIs as Java parses and resolves them: which texts are refused, and what a relative reference becomes.

Java follows RFC 2396 with some changes. A schema is valid only if its `$id` and `$ref` are URIs to Java.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

_UNRESERVED: Final = r"A-Za-z0-9_\-!.~'()*"
_OTHER: Final = r"[^\x00-\x7f\x80-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_ESCAPED: Final = "%[0-9A-Fa-f]{2}"
_PATH: Final = re.compile(rf"(?:[{_UNRESERVED}:@&=+$,;/]|{_ESCAPED}|{_OTHER})*+")
_URIC: Final = re.compile(rf"(?:[{_UNRESERVED};/?:@&=+$,\[\]]|{_ESCAPED}|{_OTHER})*+")
_REGISTRY: Final = re.compile(rf"(?:[{_UNRESERVED}$,;:@&=+]|{_ESCAPED}|{_OTHER})*+")
_IPV6: Final = re.compile(rf"(?:[{_UNRESERVED}$,;:&=+%]*@)?\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.\-]+)?\](?::[0-9]*)?")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*+")


class InvalidUri(ValueError):
    """A text that is no URI to Java."""


class Uri(NamedTuple):
    """The parts of a URI. `opaque` is what follows the scheme of a URI without hierarchy, such as `urn:a`."""

    scheme: str | None
    authority: str | None
    path: str
    query: str | None
    fragment: str | None
    opaque: str | None
    text: str

    @property
    def is_absolute(self) -> bool:
        return self.scheme is not None

    def without_fragment(self) -> str:
        return self.text.partition("#")[0]


@lru_cache(maxsize=256)
def parse_uri(text: str) -> Uri:
    """Returns the parts of a URI. Raises InvalidUri."""
    rest, hashed, fragment = text.partition("#")
    if hashed:
        _require(_URIC, fragment, "fragment", text)
    end = min((index for index in map(rest.find, "/?") if index >= 0), default=len(rest))
    colon = rest.find(":", 0, end)
    scheme = None
    if colon >= 0:
        scheme, rest = rest[:colon], rest[colon + 1 :]
        _require(_SCHEME, scheme, "scheme", text)
        if not rest.startswith("/"):
            if not rest:
                raise InvalidUri(f"{text!r} has nothing after the scheme")
            _require(_URIC, rest, "scheme-specific part", text)
            return Uri(scheme, None, "", None, fragment if hashed else None, rest, text)
    authority = None
    if rest.startswith("//"):
        end = min((index for index in (rest.find("/", 2), rest.find("?", 2)) if index >= 0), default=len(rest))
        authority, rest = rest[2:end], rest[end:]
        if authority:
            _check_authority(authority, text)
        elif not rest and not hashed:
            raise InvalidUri(f"{text!r} has no authority after //")
        else:
            authority = None
    path, asked, query = rest.partition("?")
    _require(_PATH, path, "path", text)
    if asked:
        _require(_URIC, query, "query", text)
    return Uri(scheme, authority, path, query if asked else None, fragment if hashed else None, None, text)


def resolve_uri(base: Uri, reference: str) -> Uri:
    """Resolves a reference against a base, as java.net.URI.resolve does. Raises InvalidUri."""
    child = parse_uri(reference)
    if child.opaque is not None or base.opaque is not None:
        return child
    if child.text.startswith("#"):
        if child.fragment == base.fragment:
            return base
        return _build(base.scheme, base.authority, base.path, base.query, child.fragment)
    if child.scheme is not None:
        return child
    if child.authority is not None:
        return _build(base.scheme, child.authority, child.path, child.query, child.fragment)
    if child.path.startswith("/"):
        path = child.path
    elif child.path and "/" not in base.path and base.is_absolute:
        path = _normalize(f"/{child.path}")
    else:
        path = _normalize(base.path[: base.path.rfind("/") + 1] + child.path)
        if ":" in path.partition("/")[0]:
            path = f"./{path}"  # or its first segment would look like a scheme
    return _build(base.scheme, base.authority, path, child.query, child.fragment)


def _build(scheme: str | None, authority: str | None, path: str, query: str | None, fragment: str | None) -> Uri:
    text = "" if scheme is None else f"{scheme}:"
    if authority is not None:
        text += f"//{authority}"
    text += path
    if query is not None:
        text += f"?{query}"
    if fragment is not None:
        text += f"#{fragment}"
    return Uri(scheme, authority, path, query, fragment, None, text)


def _normalize(path: str) -> str:
    """Removes `.` and `..` segments."""
    segments = path.split("/")
    if not any(segment in (".", "..", "") for segment in segments[1 if path.startswith("/") else 0 :]):
        return path
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            if kept and kept[-1] != "..":
                kept.pop()
            else:
                kept.append("..")
        elif segment not in (".", ""):
            kept.append(segment)
    text = "/".join(kept)
    if kept and segments[-1] in ("", ".", ".."):
        text += "/" if kept[-1] != ".." or segments[-1] != ".." else ""
    return f"/{text}" if path.startswith("/") else text


def _check_authority(authority: str, text: str) -> None:
    if "[" in authority or "]" in authority:
        if _IPV6.fullmatch(authority) is None:
            raise InvalidUri(f"{text!r} has an illegal authority, {authority!r}")
    else:
        _require(_REGISTRY, authority, "authority", text)


def _require(pattern: re.Pattern[str], part: str, name: str, text: str) -> None:
    found = pattern.match(part)
    end = found.end() if found else 0
    if found is None or end != len(part):
        wrong = part[end] if end < len(part) else ""
        raise InvalidUri(f"{text[:200]!r} has an illegal character in its {name}: {wrong!r}")
