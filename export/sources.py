"""Where a checkpoint comes from: a folder that the user names, or the Hub's cache at the pinned revision.

A pinned model's files are compared with the model table's digests before anything reads them.
"""

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from vela.graphs import errors, model_table


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


def find_checkpoint(name: str | None, folder: Path | None) -> Source:
    """Find a checkpoint by name, folder, or both.

    Args:
        name: A pinned name, or any name for an unpinned folder.
        folder: A local checkpoint.

    Raises:
        CheckpointError: neither leads to a checkpoint, or a pinned one has other files.
    """
    pinned = {entry.name.casefold(): entry for entry in model_table.load_table().models}
    if name is None or name.casefold() not in pinned:
        if folder is None:
            model_table.find_model(name or "")
            raise _not_found("no checkpoint", "give --checkpoint DIR")
        return Source(name or folder.resolve().name, folder)
    entry = model_table.find_model(name)
    chosen = folder or _cached(entry.repository, entry.revision)
    model_table.check_checkpoint(chosen, entry)
    return Source(entry.name.lower(), chosen, entry.repository, entry.revision, entry.model_sha256)


def _cached(repository: str, revision: str) -> Path:
    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as cause:
        raise _not_found(
            f"no copy of {repository} at {revision[:12]} in the Hub's cache",
            f"run `hf download {repository} --revision {revision}`, or give --checkpoint DIR",
        ) from cause


def _not_found(found: str, fix: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found, expected="a checkpoint folder", where="--model, --checkpoint", fix=f"To go on, {fix}."
    )
