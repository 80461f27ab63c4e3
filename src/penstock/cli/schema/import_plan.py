"""Plans an import of schemas: the target context of each version, and an order in which references come first."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.cli.schema.archive import Archive, ArchivedSubject, ArchivedVersion, InvalidArchive, ScopeSettings
from penstock.client.schema_registry_models import SchemaReference, context_of, resolve_subject


def context_prefix(name: str) -> str:
    """Returns the prefix of a context's subjects, given its name with or without its dot. Raises ValueError.

    >>> context_prefix("staging"), context_prefix(".")
    (':.staging:', '')
    """
    bare = name.removeprefix(":").removesuffix(":").removeprefix(".")
    if ":" in bare:
        raise ValueError(f"{name!r} is not the name of a context, such as staging: it has a colon")
    return f":.{bare}:" if bare else ""


def move_to(archive: Archive, context: str) -> Archive:
    """Returns the archive with all subjects in another context, given as a prefix of subjects. Raises InvalidArchive
    if they are in several contexts now."""
    found = sorted({context_of(each.subject) for each in archive.subjects})
    if len(found) > 1:
        names = ", ".join(each.strip(":") or "." for each in found)
        raise InvalidArchive(f"the export has several contexts ({names}); they cannot be imported into one")
    old = found[0] if found else ""
    return Archive(
        contexts={context: archive.contexts.get(old, ScopeSettings())},
        subjects=tuple(_moved(each, old, context) for each in archive.subjects),
    )


def _moved(subject: ArchivedSubject, old: str, new: str) -> ArchivedSubject:
    name = new + subject.subject.removeprefix(old)

    def reference(each: SchemaReference) -> SchemaReference:
        # One without a context of its own is in that of its schema.
        is_qualified = context_of(each.subject) == old != ""
        return replace(each, subject=new + each.subject.removeprefix(old)) if is_qualified else each

    return ArchivedSubject(
        subject=name,
        settings=subject.settings,
        versions=tuple(
            replace(each, subject=name, references=tuple(map(reference, each.references)))
            for each in subject.versions
        ),
    )


def registration_order(archive: Archive) -> list[ArchivedVersion]:
    """Returns all versions, each after those it refers to. Raises InvalidArchive if one is missing."""
    known = {(each.subject, each.version): each for each in archive.versions}
    order: list[ArchivedVersion] = []
    seen: set[tuple[str, int]] = set()
    for version in archive.versions:
        stack: list[tuple[ArchivedVersion, Iterator[ArchivedVersion]]] = []
        if (version.subject, version.version) not in seen:
            seen.add((version.subject, version.version))
            stack.append((version, _needed(version, known)))
        while stack:  # depth first, without recursion: chains of references may be long
            each, pending = stack[-1]
            needed = next((one for one in pending if (one.subject, one.version) not in seen), None)
            if needed is None:
                order.append(each)
                stack.pop()
            else:
                seen.add((needed.subject, needed.version))
                stack.append((needed, _needed(needed, known)))
    return order


def _needed(version: ArchivedVersion, known: Mapping[tuple[str, int], ArchivedVersion]) -> Iterator[ArchivedVersion]:
    for reference in version.references:
        target = resolve_subject(version.subject, reference.subject), reference.version
        if target not in known:
            raise InvalidArchive(
                f"{version.name} refers to {target[0]} version {target[1]}, which the export does not have; export "
                "the schemas again"
            )
        yield known[target]
