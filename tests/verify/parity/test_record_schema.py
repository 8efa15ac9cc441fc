"""The record's JSON Schema: what is committed is what the code makes, records validate, and what is none does not."""

import json
from pathlib import Path

import jsonschema
import pytest

from vela.verify.parity import record, record_schema

COMMITTED = Path(record_schema.__file__).parent / "schema" / "record.schema.json"
CLEAR, OTHER = {"probabilities": [0.9, 0.1]}, {"probabilities": [0.1, 0.9]}
ERROR = {"error": {"code": "max_length_exceeded", "message": "long"}}
WINDOWED = CLEAR | {"windows": [{"start": 0, "end": 5}]}
SPANS = {"spans": [{"label": "AGE", "start": 0, "end": 2, "probability": 0.9}]}


@pytest.fixture
def validator():
    return jsonschema.Draft202012Validator(json.loads(COMMITTED.read_bytes()))


def as_json(found):
    return json.loads(record.encode_record(found))


def test_the_committed_schema_is_what_the_code_makes():
    assert COMMITTED.read_bytes() == record_schema.encode_schema()


def test_the_schema_is_one_and_names_no_module(validator):
    validator.check_schema(validator.schema)

    assert "vela." not in json.dumps(validator.schema["$defs"])
    assert {"ParityRecord", "SidesOfQuantiles", "SidesOfThroughput", "SidesOfStr"} <= {*validator.schema["$defs"]}


@pytest.mark.parametrize("device_class", ["cpu", "rocm", "reduced"])
@pytest.mark.parametrize(
    ("mode", "baseline", "candidate"),
    [
        ("sequence", [CLEAR, CLEAR, ERROR, WINDOWED, CLEAR], [CLEAR, OTHER, CLEAR, CLEAR]),
        ("sequence", [{"probabilities": [None, 0.1]}], [CLEAR]),
        ("tokens", [SPANS, {"spans": []}], [{"spans": []}, SPANS]),
        ("embedding", [{"embedding": [1.0, 0.0]}], [{"embedding": [0.9, 0.1]}]),
        ("sequence", [ERROR], [ERROR]),
    ],
)
def test_records_validate_whatever_they_found(recorded, validator, device_class, mode, baseline, candidate):
    validator.validate(as_json(recorded.compare(mode, baseline, candidate, device_class)))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("format",), "vela1-legacy-parity/2"),
        (("passed",), None),
        (("thresholds", "label"), None),
        (("jobs", 0, "mode"), "guess"),
        (("jobs", 0, "compared"), "5"),
        (("jobs", 0, "disagreements", 0, "reason"), "taste"),
        (("jobs", 0, "latency_ms", "legacy", "p50"), "fast"),
        (("vela", "jobs", 0, "verdicts", "strict", "verdict"), "perhaps"),
    ],
)
def test_what_is_no_record_does_not_validate(recorded, validator, place, value):
    found = as_json(recorded.compare("sequence", [CLEAR, CLEAR], [CLEAR, OTHER]))
    *parents, last = place
    part = found
    for name in parents:
        part = part[name]
    part[last] = value

    with pytest.raises(jsonschema.ValidationError):
        validator.validate(found)


@pytest.mark.parametrize("name", ["jobs", "inputs_sha256", "vela"])
def test_a_record_that_lacks_a_part_does_not_validate(recorded, validator, name):
    found = as_json(recorded.compare("sequence", [CLEAR], [CLEAR]))
    del found[name]

    with pytest.raises(jsonschema.ValidationError, match=name):
        validator.validate(found)
