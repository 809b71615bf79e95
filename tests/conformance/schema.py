"""Checks a value against a JSON Schema, as far as `vectors.schema.json` uses one.

A keyword that is not known here is refused, so no rule of the schema goes unchecked.
"""

from collections.abc import Iterator
from typing import cast

from .vectors import JSON

Schema = dict[str, JSON]

NOTES = {"$schema", "$id", "$defs", "title", "description"}
RULES = {
    *("$ref", "anyOf", "const", "enum", "type", "minimum", "maximum"),
    *("required", "properties", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"),
}
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def violations(value: JSON, schema: Schema, root: Schema, where: str = "") -> Iterator[str]:
    """One sentence per rule that the value breaks."""
    unknown = schema.keys() - NOTES - RULES
    if unknown:
        raise ValueError(f"{where}: this checker does not know {unknown}")
    if "$ref" in schema:
        yield from violations(value, _definition(root, str(schema["$ref"])), root, where)
    if "anyOf" in schema and not any(_fits(value, option, root) for option in _schemas(schema["anyOf"])):
        yield f"{where}: fits none of the alternatives"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: is not {schema['const']!r}"
    if "enum" in schema and value not in cast("list[JSON]", schema["enum"]):
        yield f"{where}: is not one of {schema['enum']}"
    if "type" in schema and not _has_type(value, schema["type"]):
        yield f"{where}: is not of type {schema['type']}"
    elif isinstance(value, dict):
        yield from _object_violations(value, schema, root, where)
    elif isinstance(value, list):
        yield from _array_violations(value, schema, root, where)
    elif isinstance(value, (int, float)):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not cast(float, low) <= value <= cast(float, high):
            yield f"{where}: is out of range"


def _object_violations(value: dict[str, JSON], schema: Schema, root: Schema, where: str) -> Iterator[str]:
    for key in cast("list[str]", schema.get("required", [])):
        if key not in value:
            yield f"{where}.{key}: is missing"
    properties = cast("dict[str, Schema]", schema.get("properties", {}))
    others = schema.get("additionalProperties", True)
    for key, item in value.items():
        if key in properties:
            yield from violations(item, properties[key], root, f"{where}.{key}")
        elif isinstance(others, dict):
            yield from violations(item, others, root, f"{where}.{key}")
        elif others is False:
            yield f"{where}.{key}: is not foreseen"


def _array_violations(value: list[JSON], schema: Schema, root: Schema, where: str) -> Iterator[str]:
    fewest, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not cast(int, fewest) <= len(value) <= cast(int, most):
        yield f"{where}: has {len(value)} items"
    first = _schemas(schema.get("prefixItems", []))
    others = cast(Schema, schema.get("items", {}))
    for index, item in enumerate(value):
        rule = first[index] if index < len(first) else others
        yield from violations(item, rule, root, f"{where}[{index}]")


def _has_type(value: JSON, names: JSON) -> bool:
    wanted = names if isinstance(names, list) else [names]
    allowed = [kind for name in wanted for kind in TYPES[str(name)]]
    return bool in allowed if isinstance(value, bool) else isinstance(value, tuple(allowed))


def _fits(value: JSON, schema: Schema, root: Schema) -> bool:
    return not any(True for _ in violations(value, schema, root))


def _schemas(value: JSON) -> list[Schema]:
    return cast("list[Schema]", value)


def _definition(root: Schema, reference: str) -> Schema:
    return cast("dict[str, Schema]", root["$defs"])[reference.removeprefix("#/$defs/")]
