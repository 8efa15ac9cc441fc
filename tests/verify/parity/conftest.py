"""Recorded answers made by hand: files as a recorder writes them, with one job unless a test says otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest

from vela.verify.parity import comparison, record, recording

INPUTS_SHA256 = "5" * 64


class Recorded:
    """Writes answer files, and compares them through the same files that a user has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def header(self, jobs: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        return {"format": "vela-answers/1", "side": "a", "inputs_sha256": INPUTS_SHA256, "jobs": jobs, **fields}

    def job(self, mode: str, count: int, **fields: Any) -> dict[str, Any]:
        options = {"max_tokens": 8192, "overflow": "reject", "window": None}
        ids = [f"p{index:04d}" for index in range(count)]
        return {"job": "j", "model": "m", "revision": "r", "mode": mode, "options": options, "inputs": ids} | fields

    def answers(self, results: list[dict[str, Any] | None], job: str = "j") -> list[dict[str, Any]]:
        """Give a line for each result; one that holds `error` and nothing else is a rejection, None is left out."""
        found = []
        for index, result in enumerate(results):
            body = result if result is None or list(result) == ["error"] else {"result": result}
            if body is not None:
                found.append({"job": job, "id": f"p{index:04d}", "latency_ns": [9_000_000, 2_000_000], **body})
        return found

    def write(self, name: str, lines: list[Any]) -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def sides(self, mode: str, baseline: list[Any], candidate: list[Any], **fields: Any) -> tuple[Path, Path]:
        """Write both files."""
        head = self.header([self.job(mode, max(len(baseline), len(candidate)), **fields)])
        return (
            self.write("baseline.jsonl", [head, *self.answers(baseline)]),
            self.write("candidate.jsonl", [head, *self.answers(candidate)]),
        )

    def compare(
        self, mode: str, baseline: list[Any], candidate: list[Any], device_class: str = "cpu", **fields: Any
    ) -> record.ParityRecord:
        """Write both files, read them, compare."""
        expected, actual = map(recording.Recording.from_file, self.sides(mode, baseline, candidate, **fields))
        return comparison.compare(comparison.Comparison.from_recordings(expected, actual), device_class)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)
