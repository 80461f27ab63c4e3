"""Rules for schemas of objects.

What decides about added and removed properties is the content model. It is open if an object may have any further
properties, closed if it may have none, and partially open if further properties must fit a schema.
"""

from typing import Final

from penstock.schemas.formats.json_schema.comparison import Finder, Steps
from penstock.schemas.formats.json_schema.limit_rules import compare_limits
from penstock.schemas.formats.json_schema.schema_nodes import EmptyNode, FalseNode, Node, ObjectNode

_SIZES: Final = (
    ("properties_max", "maxProperties", "MAX_PROPERTIES"),
    ("properties_min", "minProperties", "MIN_PROPERTIES"),
)


def compare_objects(found: Finder, writer: ObjectNode, reader: ObjectNode) -> Steps:
    for name in writer.properties:
        if name in reader.properties and name in reader.requirements and name not in writer.requirements:
            kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
            found.add(f"required/{name}", kind if reader.properties[name].has_default else "REQUIRED_ATTRIBUTE_ADDED")
    for name, old in writer.properties.items():
        new = reader.properties.get(name)
        path = f"properties/{name}"
        if new is None:
            yield from _remove(found, path, name, old, reader)
        else:
            findings = yield old, new
            found.add_below(path, findings)
    for name, new in reader.properties.items():
        if name not in writer.properties:
            yield from _add(found, f"properties/{name}", name, new, writer, reader)
    yield from _compare_dependencies(found, writer, reader)
    yield from compare_additional(found, writer, reader, "additionalProperties", "ADDITIONAL_PROPERTIES")
    yield from compare_unevaluated(found, writer, reader, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    compare_limits(found, writer, reader, _SIZES)


def compare_additional(found: Finder, writer: Node, reader: Node, path: str, kind: str) -> Steps:
    """Compares what further properties or items may be."""
    allowed, allows = writer.allows_additional, reader.allows_additional  # type: ignore[attr-defined]
    old, new = writer.additional, reader.additional  # type: ignore[attr-defined]
    if allowed != allows:
        found.add(path, f"{kind}_ADDED" if allows else f"{kind}_REMOVED")
    elif old is None or new is None:
        if old is not new:
            found.add(path, f"{kind}_NARROWED" if old is None else f"{kind}_EXTENDED")
    else:
        findings = yield old, new
        found.add_below(path, findings)


def compare_unevaluated(found: Finder, writer: Node, reader: Node, path: str, kind: str) -> Steps:
    """Compares what properties or items may be that no other keyword looks at."""
    old, new = writer.unevaluated, reader.unevaluated  # type: ignore[attr-defined]
    if old is None and new is None:
        return
    if isinstance(old, FalseNode) != isinstance(new, FalseNode):
        found.add(path, f"{kind}_ADDED" if isinstance(old, FalseNode) else f"{kind}_REMOVED")
    elif old is None or new is None or isinstance(old, EmptyNode) != isinstance(new, EmptyNode):
        is_narrowed = old is None or (new is not None and isinstance(old, EmptyNode))
        found.add(path, f"{kind}_NARROWED" if is_narrowed else f"{kind}_EXTENDED")
    else:
        findings = yield old, new
        found.add_below(path, findings)


def _remove(found: Finder, path: str, name: str, old: Node, reader: ObjectNode) -> Steps:
    """Compares a property of the writer that the reader does not declare."""
    if _is_open(reader):
        return
    covering = _schema_of_further(found, reader, name)
    if covering is not None:
        findings = yield old, covering
        found.add_below(path, findings)
        if findings:
            found.add(path, "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    elif not isinstance(old, FalseNode):
        found.add(path, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")


def _add(found: Finder, path: str, name: str, new: Node, writer: ObjectNode, reader: ObjectNode) -> Steps:
    """Compares a property of the reader that the writer does not declare."""
    is_required = name in reader.requirements
    if _is_open(writer):
        if isinstance(new, EmptyNode):
            return
        start = "OPTIONAL_PROPERTY"
        if is_required:
            start = "REQUIRED_PROPERTY_WITH_DEFAULT" if new.has_default else "REQUIRED_PROPERTY"
        found.add(path, f"{start}_ADDED_TO_OPEN_CONTENT_MODEL")
        return
    covering = _schema_of_further(found, writer, name)
    if covering is not None:
        findings = yield covering, new
        found.add_below(path, findings)
        if findings:
            found.add(path, "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    if is_required and not new.has_default:
        found.add(path, "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL")


def _compare_dependencies(found: Finder, writer: ObjectNode, reader: ObjectNode) -> Steps:
    """Compares what must be there if a certain property is: other properties, or a schema."""
    for name, needed in reader.dependencies.items():
        path, old_needed = f"dependencies/{name}", writer.dependencies.get(name)
        if old_needed is None:
            found.add(path, "DEPENDENCY_ARRAY_ADDED")
        elif old_needed < needed:
            found.add(path, "DEPENDENCY_ARRAY_EXTENDED")
        elif not needed <= old_needed:
            found.add(path, "DEPENDENCY_ARRAY_CHANGED")
    for name, new in reader.schema_dependencies.items():
        path, old = f"dependencies/{name}", writer.schema_dependencies.get(name)
        if old is None:
            found.add(path, "DEPENDENCY_SCHEMA_ADDED")
        else:
            findings = yield old, new
            found.add_below(path, findings)


def _is_open(node: ObjectNode) -> bool:
    return (
        node.allows_additional
        and node.additional is None
        and not node.patterns
        and (node.unevaluated is None or isinstance(node.unevaluated, EmptyNode))
    )


def _schema_of_further(found: Finder, node: ObjectNode, name: str) -> Node | None:
    """Returns the schema of a property that is not declared; None if it may be anything, or may not exist."""
    for pattern, schema in node.patterns.items():
        if found.comparison.finds(pattern, name):
            return schema
    return schema_of_additional(node)


def schema_of_additional(node: Node) -> Node | None:
    """Returns the schema that further properties or items must fit, if there is one."""
    additional, unevaluated = node.additional, node.unevaluated  # type: ignore[attr-defined]
    if additional is not None:
        return additional  # type: ignore[no-any-return]
    if node.allows_additional and not isinstance(unevaluated, FalseNode | EmptyNode):  # type: ignore[attr-defined]
        return unevaluated  # type: ignore[no-any-return]
    return None
