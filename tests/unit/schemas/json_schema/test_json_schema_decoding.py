"""Verdicts and real data: what a compatible reader must accept is written with the writer's schema and validated."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from penstock.schemas.formats.json_schema import parse

DRAFTS = {
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
NAMES = ("a", "b", "c", "d")
Json = Any


class Author:
    """Makes random schemas from those keywords that Confluent's rules decide exactly, and data for them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def schema(self, depth: int = 3) -> Json:
        kinds = [self._string, self._number, self._plain, self._enum]
        if depth:
            kinds += [self.object, self.object, self._array, self._union, self._reference]
        return self._rng.choice(kinds)(depth)

    def evolved(self, schema: Json) -> Json:
        """Returns a schema that differs in one place."""
        rng = self._rng
        changed = {"properties": {"r": copy.deepcopy(schema)}}
        node = rng.choice(list(_schemas(changed["properties"]["r"])))
        if rng.random() < 0.15:
            node.clear()
            node.update(self.schema(1))
        elif rng.random() < 0.15:
            members = [copy.deepcopy(node), *(self.schema(0) for _ in range(rng.randrange(2)))]
            node.clear()
            node["anyOf"] = members
        elif "anyOf" in node or "enum" in node:
            self._change_list(node.get("anyOf") or node["enum"])
        elif node.get("type") == "object":
            self._change_object(node)
        elif "type" in node:
            self._change_limit(node)
        return changed["properties"]["r"]

    def data(self, schema: Json, root: Json, depth: int = 8) -> Json:
        """Returns data that the schema allows; None if none could be made."""
        rng = self._rng
        if schema in (True, {}):
            return rng.choice((0, "x", True, [1], {"z": 1}, 1.5))
        if "$ref" in schema:
            return self.data(root["definitions"]["D"], root, depth - 1) if depth else None
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if "anyOf" in schema:
            return self.data(rng.choice(schema["anyOf"]), root, depth)
        match schema.get("type"):
            case "string":
                return "y" * rng.randrange(schema.get("minLength", 0), schema.get("maxLength", 6) + 1)
            case "integer":
                return rng.randrange(schema.get("minimum", -9), schema.get("maximum", 9) + 1)
            case "number":
                return rng.uniform(schema.get("minimum", -9), schema.get("maximum", 9))
            case "boolean":
                return rng.random() < 0.5
            case "array":
                size = rng.randrange(schema.get("minItems", 0), schema.get("maxItems", 4) + 1)
                return [self.data(schema["items"], root, depth) for _ in range(size)]
            case "object":
                return self._members(schema, root, depth)
        return None

    def _members(self, schema: Json, root: Json, depth: int) -> Json:
        rng = self._rng
        further = schema.get("additionalProperties", True)
        names = {name: item for name, item in schema["properties"].items() if name in schema["required"]}
        names |= {name: item for name, item in schema["properties"].items() if rng.random() < 0.5}
        if further is not False:
            names |= {name: further for name in NAMES if name not in schema["properties"] and rng.random() < 0.3}
        return {name: self.data(item, root, depth) for name, item in names.items()}

    def _change_list(self, values: list[Any]) -> None:
        change = self._rng.randrange(3)
        if change == 0 and len(values) > 1:
            values.pop(self._rng.randrange(len(values)))
        elif change == 1:
            self._rng.shuffle(values)
        else:
            values.append(self._rng.choice(NAMES) if isinstance(values[0], str) else self.schema(0))

    def _change_object(self, node: Json) -> None:
        name = self._rng.choice(NAMES)
        match self._rng.randrange(4):
            case 0:
                node["properties"].pop(name, None)
            case 1:
                node["properties"].setdefault(name, self.schema(1))
            case 2 if name in node["properties"]:
                node["required"] = sorted({*node["required"]} ^ {name})
            case _:
                node["additionalProperties"] = self._rng.choice((True, False, self.schema(0)))
        node["required"] = [each for each in node["required"] if each in node["properties"]]

    def _change_limit(self, node: Json) -> None:
        kind = node["type"]
        if kind in ("integer", "number") and self._rng.random() < 0.3:
            node["type"] = "number" if kind == "integer" else "integer"
            return
        limits = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
        name = self._rng.choice(limits.get(kind, ("minimum", "maximum")))
        if node.pop(name, None) is None or self._rng.random() < 0.5:
            node[name] = self._rng.randrange(3) + 3 * name.startswith("max")

    def _string(self, _: int) -> Json:
        limits = {"minLength": self._rng.randrange(3), "maxLength": self._rng.randrange(3, 6)}
        return {"type": "string"} | {name: limit for name, limit in limits.items() if self._rng.random() < 0.4}

    def _number(self, _: int) -> Json:
        limits = {"minimum": self._rng.randrange(3), "maximum": self._rng.randrange(3, 6)}
        kept = {name: limit for name, limit in limits.items() if self._rng.random() < 0.4}
        return {"type": self._rng.choice(("integer", "number"))} | kept

    def _plain(self, _: int) -> Json:
        return self._rng.choice(({"type": "boolean"}, {"type": "null"}, {}))

    def _enum(self, _: int) -> Json:
        return {"enum": self._rng.sample(NAMES, self._rng.randrange(1, 4))}

    def object(self, depth: int) -> Json:
        properties = {
            name: self.schema(depth - 1) for name in self._rng.sample(NAMES, self._rng.randrange(len(NAMES)))
        }
        required = [name for name in properties if self._rng.random() < 0.4]
        schema = {"type": "object", "properties": properties, "required": required}
        return self._rng.choice(
            (schema, schema | {"additionalProperties": False}, schema | {"additionalProperties": self.schema(0)})
        )

    def _array(self, depth: int) -> Json:
        limits = {"minItems": self._rng.randrange(2), "maxItems": self._rng.randrange(2, 5)}
        kept = {name: limit for name, limit in limits.items() if self._rng.random() < 0.3}
        return {"type": "array", "items": self.schema(depth - 1)} | kept

    def _union(self, depth: int) -> Json:
        return {"anyOf": [self.schema(depth - 1) for _ in range(self._rng.randrange(1, 4))]}

    def _reference(self, _: int) -> Json:
        return {"$ref": "#/definitions/D"}


def _schemas(schema: Json) -> Iterator[dict[str, Any]]:
    """Yields a schema and all schemas in it."""
    if isinstance(schema, dict):
        yield schema
        further = schema.get("additionalProperties")
        for item in (*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items"), further):
            yield from _schemas(item)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_compatible_reader_accepts_the_writers_data(draft: str, seed: int) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    validator: Callable[[Json], Any] = DRAFTS[draft]
    checked = refused = 0
    for round_ in range(400):
        writer = {"$schema": draft, "type": "object", "required": [], "properties": {"r": author.schema()}}
        writer["definitions"] = {"D": author.object(2)}
        if rng.random() < 0.3:
            reader = writer | {"definitions": {"D": author.evolved(writer["definitions"]["D"])}}
        else:
            reader = writer | {"properties": {"r": author.evolved(writer["properties"]["r"])}}
        texts = [json.dumps(schema) for schema in (writer, reader)]
        schemas = [parse(text, {}) for text in texts]
        assert schemas[0].differences(schemas[0]) == []
        is_compatible = not schemas[1].differences(schemas[0])
        accepts = validator(reader)
        writes = validator(writer)
        found = [author.data(writer, writer) for _ in range(12)]
        data = [item for item in found if writes.is_valid(item)]
        wrong = next((item for item in data if not accepts.is_valid(item)), None)
        assert wrong is None or not is_compatible, (seed, round_, texts, wrong)
        checked += is_compatible and texts[0] != texts[1] and bool(data)
        refused += not is_compatible and wrong is not None
    # The test says something only if there are both kinds, and if incompatible readers do refuse data.
    assert checked > 60
    assert refused > 60
