"""Schemas of structs that hold unions of structs, which msgspec encodes and does not describe.

msgspec tells structs of a union apart by a tag when it decodes; answers are only ever encoded, and clients of the
surface tell them apart by their fields. So for the description such a union is replaced by a list of references.
"""

import functools
import types
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

REF = "#/components/schemas/{name}"
Struct = type[msgspec.Struct]


def describe(structs: Sequence[Struct]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Give a reference to each struct's schema, and all schemas by name."""
    rewriting = _Rewriting()
    described = [rewriting.struct(struct) for struct in structs]
    members = [rewriting.struct(struct) for struct in tuple(rewriting.members)]
    references, components = msgspec.json.schema_components([*described, *members], ref_template=REF)
    return list(references[: len(structs)]), components


class _Rewriting:
    """Structs with references in place of unions, each made once.

    Attributes:
        members: Structs that unions hold.
    """

    def __init__(self) -> None:
        self.members: dict[Struct, None] = {}
        self._made: dict[Struct, Struct] = {}

    def struct(self, struct: Struct) -> Struct:
        """Give a struct of the same name and fields that can be described."""
        if struct not in self._made:
            self._made[struct] = self._make(struct)
        return self._made[struct]

    def _make(self, struct: Struct) -> Struct:
        hints = get_type_hints(struct, include_extras=True)
        found = {name: self._hint(hints[name]) for name in struct.__struct_fields__}
        if all(found[name] == hints[name] for name in found):
            return struct
        fields = [
            (field.name, found[field.name]) if field.required else (field.name, found[field.name], _default(field))
            for field in msgspec.structs.fields(struct)
        ]
        is_strict = struct.__struct_config__.forbid_unknown_fields
        made = msgspec.defstruct(
            struct.__name__, fields, kw_only=True, forbid_unknown_fields=is_strict, module=struct.__module__
        )
        made.__doc__ = struct.__doc__
        return made

    def _hint(self, hint: Any) -> Any:
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._union(parts)
        if origin is list:
            return list[self._hint(parts[0])]  # type: ignore[misc]
        return self.struct(hint) if _is_struct(hint) else hint

    def _union(self, parts: Sequence[Any]) -> Any:
        several = [part for part in parts if _is_struct(part)]
        if len(several) < 2:
            return functools.reduce(lambda one, other: one | other, map(self._hint, parts))
        self.members |= dict.fromkeys(several)
        either: list[dict[str, Any]] = [{"$ref": REF.format(name=part.__name__)} for part in several]
        either += [{"type": "null"}] if type(None) in parts else []
        return Annotated[Any, msgspec.Meta(extra_json_schema={"anyOf": either})]


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    is_made = field.default is msgspec.NODEFAULT
    return msgspec.field(default_factory=field.default_factory) if is_made else field.default
