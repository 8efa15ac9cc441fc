"""The journal of a run of the gate: finished parts, so that a run that was interrupted goes on where it stopped.

It lies beside the bundle, never in it: a bundle is untrusted, and a verdict must not rest on what came with it. It is
bound to everything that an answer depends on, and removed when the run is complete.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from vela.graphs import digests, record
from vela.verify import reference

PLAN_FILE = "plan.json"
KEY_SHOWN = 12  # characters of the key in the folder's name
logger = logging.getLogger(__name__)


class Journal:
    """Finished parts of one run; without a folder it keeps nothing.

    Attributes:
        is_resumed: Whether an earlier run left parts.
    """

    def __init__(self, folder: Path | None, *, is_resumed: bool) -> None:
        self._folder = folder
        self.is_resumed = is_resumed

    @classmethod
    def open(cls, bundle: Path, facts: Mapping[str, Any], *, is_fresh: bool) -> Self:
        """Open the journal of a bundle for a run.

        Args:
            bundle: The bundle's folder.
            facts: Everything that an answer depends on, as JSON can hold it; another run has another journal.
            is_fresh: Drop what an earlier run left.
        """
        key = digests.sha256_of_bytes(json.dumps(facts, sort_keys=True).encode())
        bundle = bundle.resolve()
        folder = bundle.with_name(f".{bundle.name}.verification-{key[:KEY_SHOWN]}.partial")
        try:
            if is_fresh:
                shutil.rmtree(folder, ignore_errors=True)
            is_resumed = (folder / PLAN_FILE).is_file()
            folder.mkdir(exist_ok=True)
        except OSError as cause:
            logger.warning("%s cannot be written (%s): an interrupted run will start anew", folder.parent, cause)
            return cls(None, is_resumed=False)
        return cls(folder, is_resumed=is_resumed)

    def plan(self) -> dict[str, int] | None:
        """Give how many runs each graph keeps, as the interrupted run planned it."""
        if self._folder is None or not self.is_resumed:
            return None
        return msgspec.json.decode((self._folder / PLAN_FILE).read_bytes(), type=dict[str, int])

    def keep_plan(self, kept: Mapping[str, int]) -> None:
        """Keep how many runs each graph keeps: durations are measured anew each time, and may not move it."""
        self._write(PLAN_FILE, msgspec.json.encode(dict(kept)))

    def answers(self, kind: str) -> dict[str, reference.Answer]:
        """Read the reference's answers of a kind, by `key_of_ids`."""
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self._folder.glob(f"{kind}-*.npz")) if self._folder else ():
            with np.load(path, allow_pickle=False) as content:
                for name in content.files:
                    key, _, output = name.partition("/")
                    found.setdefault(key, {})[output] = content[name]
        return dict(found)

    def keep_answers(self, kind: str, answers: Mapping[str, reference.Answer]) -> None:
        """Keep more answers of a kind."""
        if self._folder is None or not answers:
            return
        arrays: dict[str, Any] = {
            f"{key}/{name}": value for key, answer in answers.items() for name, value in answer.items()
        }
        path = self._folder / f"{kind}-{len(list(self._folder.glob(f'{kind}-*.npz'))):05d}.npz"
        staging = path.with_suffix(".partial")
        with staging.open("wb") as stream:
            np.savez(stream, **arrays)
        os.replace(staging, path)

    def finished(self, graph_id: str, corpus_sha256: str) -> record.Record | None:
        """Give a graph's record if it was judged on these runs."""
        path = self._folder / f"{graph_id}.record.json" if self._folder else None
        if path is None or not path.is_file():
            return None
        found = msgspec.json.decode(path.read_bytes(), type=record.Record)
        return found if found.corpus_sha256 == corpus_sha256 else None

    def keep_record(self, found: record.Record) -> None:
        """Keep a finished record."""
        self._write(f"{found.graph_id}.record.json", record.encode_record(found))

    def close(self) -> None:
        """Remove the journal: the run is complete, and its records lie in the bundle."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, name: str, content: bytes) -> None:
        if self._folder is None:
            return
        staging = self._folder / f"{name}.partial"
        staging.write_bytes(content)
        os.replace(staging, self._folder / name)


def key_of_ids(ids: tuple[int, ...]) -> str:
    """Give the key under which an input's answer is kept."""
    return hashlib.sha256(np.array(ids, np.int64).tobytes()).hexdigest()
