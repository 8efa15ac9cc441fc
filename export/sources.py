"""Where a checkpoint comes from: a folder that the user names, else the Hub's cache, else the Hub.

A pinned model's files are compared with the model table's digests before anything reads them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vela.graphs import errors, model_table

if TYPE_CHECKING:
    from vela.export import hub


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint folder and what the model table pins of it; empty strings where nothing is pinned."""

    name: str
    folder: Path
    repository: str = ""
    revision: str = ""
    model_sha256: str = ""

    @property
    def is_pinned(self) -> bool:
        """Whether the model table names this checkpoint's files."""
        return bool(self.revision)


def find_checkpoint(
    name: str | None,
    folder: Path | None,
    table: model_table.ModelTable | None = None,
    *,
    progress: Callable[[str], None] = lambda message: None,
    source: "hub.Hub | None" = None,
) -> Source:
    """Find a checkpoint by name, folder, or both.

    Args:
        name: A pinned name, or any name for an unpinned folder.
        folder: A local checkpoint; without one, a pinned model's files are those of the Hub's cache, and of the Hub.
        table: The pinned models; the ones that ship, where none is given.
        progress: Told what is fetched.
        source: The Hub; the one that huggingface_hub is set to, where none is given.

    Raises:
        CheckpointError: neither leads to a checkpoint, or a pinned one has other files.
    """
    pins = table or model_table.load_table()
    chosen = name or (folder.resolve().name if folder else "")
    if not pins.knows(chosen):
        if folder is None:
            pins.find(chosen)
            raise _not_found("no checkpoint", "give --checkpoint DIR")
        return Source(chosen, folder)
    entry = pins.find(chosen)  # also of a folder that bears the name: it stands for exact bytes
    if folder is None:
        from vela.export import hub  # its client, only where something may be fetched

        folder = (source or hub.Hub()).fetch(entry, progress)
        model_table.check_deciding_files(folder, entry)
    else:
        model_table.check_checkpoint(folder, entry)
    return Source(entry.name.lower(), folder, entry.repository, entry.revision, entry.model_sha256)


def _not_found(found: str, fix: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found, expected="a checkpoint folder", where="--model, --checkpoint", fix=f"To go on, {fix}."
    )
