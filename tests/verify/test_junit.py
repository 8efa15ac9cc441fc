"""Records as JUnit XML: every check is a case, and what did not run is no pass."""

from xml.etree import ElementTree

import msgspec

from vela.graphs import record
from vela.verify import junit


def made(*checks: record.Check, verdict: str = "failed") -> record.Record:
    return msgspec.convert(
        {
            **{"schema_version": record.SCHEMA_VERSION, "verdict": verdict, "cause": "", "graph_id": "model"},
            **{"graph_sha256": "", "manifest_sha256": "", "checkpoint_sha256": "", "reference": "r"},
            **{"reference_noise": 0.0, "engine": None, "corpus_sha256": "", "planned": 0, "compared": 0},
            **{"bar": "strict", "bars": [], "checks": [msgspec.to_builtins(check) for check in checks]},
            **{"form": "sequence", "estimate": {"seconds": 0, "kept": 0, "whole": 0, "minimum": 0}, "runs": []},
            **{"statistics": [], "worst": [], "tools": {}, "created": "2026-01-01T00:00:00+00:00", "duration_s": 1.5},
        },
        record.Record,
    )


def parse(*records: record.Record) -> ElementTree.Element:
    return ElementTree.fromstring(junit.to_junit("bundle", records))


def test_every_check_is_a_case_of_its_graph():
    passed, failed = (
        record.Check("a", "passed", "well", 0.25),
        record.Check("b", "failed", "other <weights> & more", 0.0),
    )

    (suite,) = parse(made(passed, failed))

    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("model on no engine", "2", "1")
    first, second = suite
    assert (first.get("classname"), first.get("name"), first.get("time")) == ("bundle.model", "a", "0.250")
    assert first.find("failure") is None
    assert second.find("failure").get("message") == "other <weights> & more"


def test_a_check_that_did_not_run_is_an_error_and_not_skipped():
    whole = parse(made(record.Check("parity.strict", "not_run", "no room", 0.0), verdict="not_compared"))

    assert (whole.get("errors"), whole.get("failures")) == ("1", "0")
    assert whole.find(".//error").get("message") == "not compared: no room"
    assert whole.find(".//skipped") is None


def test_what_xml_cannot_hold_is_replaced():
    (suite,) = parse(
        made(record.Check("a", "failed", "bell \x07, null \x00, half a pair \ud800, smile \U0001f600", 0.0))
    )

    assert suite[0].find("failure").get("message") == "bell \ufffd, null \ufffd, half a pair \ufffd, smile \U0001f600"


def test_the_file_is_there_whole_or_not(tmp_path):
    folder = tmp_path / "made"
    junit.write(folder / "out.xml", "bundle", [made(record.Check("a", "passed", "", 0.0))])

    assert [path.name for path in folder.iterdir()] == ["out.xml"]
    assert ElementTree.parse(folder / "out.xml").getroot().get("tests") == "1"
