"""What a run of the laboratory has finished, a line of JSON for each trial, so that an interrupted run goes on.

Entries are of one seed and one state of the code that is judged; whoever changes the gate starts with an empty folder.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.judging import Outcome
from lab.trial import Row
from lab.variations import Variation


@dataclass(frozen=True, slots=True)
class Ledger:
    """Finished trials and variations, in a file each.

    Attributes:
        folder: Where the files lie.
        seed: Of the trials.
    """

    folder: Path
    seed: int

    def rows(self) -> dict[tuple[str, str], Row]:
        """Give finished trials by fault and scene."""
        made = (
            Row(**line | {"outcome": None if line["outcome"] is None else Outcome(**line["outcome"])})
            for line in _read(self._trials)
        )
        return {(row.fault, row.scene): row for row in made}

    def add_row(self, row: Row) -> None:
        _append(self._trials, asdict(row))

    def variations(self) -> dict[Variation, Outcome]:
        """Give judged variations."""
        return {Variation(**line["variation"]): Outcome(**line["outcome"]) for line in _read(self._variations)}

    def add_variation(self, variation: Variation, outcome: Outcome) -> None:
        _append(self._variations, {"variation": asdict(variation), "outcome": asdict(outcome)})

    @property
    def _trials(self) -> Path:
        return self.folder / f"trials-{self.seed}.jsonl"

    @property
    def _variations(self) -> Path:
        return self.folder / "variations.jsonl"


def _read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _append(path: Path, entry: dict) -> None:
    with path.open("a") as stream:
        stream.write(json.dumps(entry) + "\n")
