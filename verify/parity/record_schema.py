"""The JSON Schema of a comparison's record, made of the structs that write it.

`schema/record.schema.json` holds it for whoever reads records without Vela. A test compares the two; this writes it:
`python -m vela.verify.parity.record_schema > verify/parity/schema/record.schema.json`.
"""

import json
import sys
from typing import Any

import msgspec

from vela.verify.parity import record

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/{name}"


def record_schema() -> dict[str, Any]:
    """Describe `ParityRecord`. Fields that it does not name are allowed, as readers of records ignore them."""
    (root,), components = msgspec.json.schema_components([record.ParityRecord], ref_template=REF)
    renamed = {name: _plain(name) for name in components}
    content = json.dumps(components)
    for name, plain in renamed.items():
        content = content.replace(json.dumps(REF.format(name=name)), json.dumps(REF.format(name=plain)))
    parts = json.loads(content)
    defs = {renamed[name]: _described(parts[name], renamed[name]) for name in sorted(parts, key=_plain)}
    return {"$schema": DIALECT, "title": f"A record in the format {record.FORMAT}", **root, "$defs": defs}


def encode_schema() -> bytes:
    """Give the bytes of the file."""
    return json.dumps(record_schema(), indent=1, ensure_ascii=False).encode() + b"\n"


def _plain(name: str) -> str:
    """Name a part by its own words: generics are called by Python's spelling of what they hold."""
    words = [word.rpartition(".")[2] for word in name.split("_")]
    return "Of".join(word[:1].upper() + word[1:] for word in words if word not in ("", "None"))


def _described(part: dict[str, Any], title: str) -> dict[str, Any]:
    """Keep the first line of a docstring: the rest of it is about Python's attributes."""
    return part | {"title": title, "description": str(part.get("description", "")).partition("\n")[0]}


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema())
