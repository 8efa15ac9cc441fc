"""The models that Vela pins: the Vela 1.0 family, by name, with the digest of every file.

A name stands for exact bytes. Export and the gate check a checkpoint against this table before they read it, so a
graph that carries a model's name was made from that model. Labels and thresholds of operating points are not here:
they are read from the checkpoint's own files, whose digests are.
"""

from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from vela.graphs import digests, errors, heads, manifest, member, task

SCHEMA_VERSION = 1
TABLE_FILE = "models.json"
REVISION_DIGITS = 40  # a git commit


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How upstream's router runs a model by default; an operator's choice, not a property of the checkpoint.

    Attributes:
        overflow: What happens to inputs above `max_tokens`, or to long ones where it is `window`.
        max_tokens: Longest document that is taken, special tokens included.
        window: Needed where `overflow` is `window`.
        threshold: Probability from which the router acts; None where it does not use one, or a file decides.
    """

    overflow: heads.Overflow
    max_tokens: int
    window: heads.Window | None
    threshold: float | None

    def __post_init__(self) -> None:
        if (self.overflow == "window") != (self.window is not None):
            raise ValueError(f"overflow {self.overflow!r} with window {self.window}")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"a threshold is a probability, got {self.threshold}")


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pinned model.

    Attributes:
        name: Short name, such as `Shield`.
        unsupported: Why Vela cannot export it; empty where it can.
        repository: Hub repository.
        revision: Commit.
        model_sha256: Upstream's identity of the checkpoint.
        licence: SPDX identifier, as the repository states it.
        model_type: `model_type` of config.json.
        architecture: The class that config.json names.
        kind: What an answer is.
        inputs: What one input is.
        parameters: Weights in model.safetensors.
        max_tokens: The task's limit, special tokens included.
        exits: Layer counts after which an embedder or reranker can stop, ascending; else empty.
        dimensions: Widths that it can be cut to, descending; else empty.
        policy: How upstream runs it by default.
        files: SHA-256 of every file that belongs to it.
    """

    name: str
    unsupported: str
    repository: str
    revision: str
    model_sha256: str
    licence: str
    model_type: str
    architecture: str
    kind: heads.SurfaceKind
    inputs: heads.HeadInputs
    parameters: int
    max_tokens: int
    exits: tuple[int, ...]
    dimensions: tuple[int, ...]
    policy: Policy
    files: dict[str, str]

    def __post_init__(self) -> None:
        if not manifest.is_name(self.name) or self.repository.count("/") != 1:
            raise ValueError(f"{self.name!r} at {self.repository!r} is no name with a repository")
        if len(self.revision) != REVISION_DIGITS or not set(self.revision) <= set("0123456789abcdef"):
            raise ValueError(f"{self.name}: the revision {self.revision!r} is no commit")
        for name, sha256 in {"model_sha256": self.model_sha256, **self.files}.items():
            if not digests.is_sha256(sha256) or not member.is_plain_name(name):
                raise ValueError(f"{self.name}: {name!r} with {sha256!r}, which is no SHA-256 of a file")
        if not {"config.json", "model.safetensors", "tokenizer.json"} <= set(self.files):
            raise ValueError(f"{self.name}: a checkpoint has a config, weights and a tokenizer")
        if min(self.parameters, self.max_tokens, *self.exits, *self.dimensions) < 1:
            raise ValueError(f"{self.name}: counts are positive")
        if self.policy.max_tokens > self.max_tokens:
            raise ValueError(f"{self.name}: the policy takes longer documents than the task")

    @property
    def supported(self) -> bool:
        """Whether Vela exports it."""
        return not self.unsupported


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole content of models.json.

    Attributes:
        schema_version: Of this shape.
        source: Where the facts were read.
        models: In upstream's order.
    """

    schema_version: int
    source: str
    models: tuple[ModelEntry, ...]

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema version {self.schema_version}, expected {SCHEMA_VERSION}")
        aliases = [alias for entry in self.models for alias in _aliases(entry)]
        if len(set(aliases)) != len(aliases):
            raise ValueError("names repeat")


def _aliases(entry: ModelEntry) -> set[str]:
    """Give what a model may be called: its name, its repository, and the repository without the organisation."""
    return {name.casefold() for name in (entry.name, entry.repository, entry.repository.partition("/")[2])}


@cache
def load_table() -> ModelTable:
    """Read the table that ships with this package, checked as a whole.

    Raises:
        CheckpointError: the installed file is damaged.
    """
    content = resources.files("vela.graphs").joinpath(TABLE_FILE).read_bytes()
    try:
        return msgspec.json.decode(content, type=ModelTable)
    except msgspec.MsgspecError as cause:
        raise errors.CheckpointError(
            f"a model table that does not validate ({cause})",
            expected="the one that this version of Vela ships",
            where=TABLE_FILE,
            fix="Install vela-onnx again.",
        ) from cause


def find_model(name: str) -> ModelEntry:
    """Find a pinned model that can be exported, by name or repository, in any case.

    Raises:
        CheckpointError: no model is called that, or it is not supported; the message says which are.
    """
    table = load_table()
    supported = ", ".join(entry.name for entry in table.models if entry.supported)
    for entry in table.models:
        if name.casefold() not in _aliases(entry):
            continue
        if entry.supported:
            return entry
        raise errors.CheckpointError(
            f"a model that is not supported yet: {entry.unsupported}",
            expected=f"one of {supported}",
            where=entry.name,
            fix="Choose one of these, or use upstream's runtime for it.",
        )
    raise errors.CheckpointError(
        f"the model name {name!r}",
        expected=f"one of {supported}",
        where="--model",
        fix="Choose one of these, or name any local checkpoint with --checkpoint.",
    )


def check_checkpoint(folder: Path, entry: ModelEntry) -> None:
    """Compare every file of a checkpoint with its pin, before anything of it is parsed.

    Links are followed: the Hub's cache keeps files as links to blobs. Other files may lie beside the pinned ones,
    unless they are of those that decide what the task is.

    Raises:
        CheckpointError: the first file that is missing, has other bytes, or decides the task without being pinned.
    """
    for name in task.DECIDING_FILES:
        if name not in entry.files and (folder / name).exists():
            raise _not_as_pinned("a file that the pinned model does not have", "none", folder / name, entry)
    # Small files first: what is wrong with them is said before gigabytes are read.
    for name, sha256 in sorted(entry.files.items(), key=lambda item: (item[0].endswith(".safetensors"), item[0])):
        path = folder / name
        found = f"sha256 {digests.sha256_of_file(path)}" if path.is_file() else "no such file"
        if found != f"sha256 {sha256}":
            raise _not_as_pinned(found, f"sha256 {sha256}", path, entry)


def _not_as_pinned(found: str, expected: str, path: Path, entry: ModelEntry) -> errors.CheckpointError:
    return errors.CheckpointError(
        found,
        expected=f"{expected}, as pinned for {entry.repository} at {entry.revision}",
        where=str(path),
        fix=f"Download {entry.name}'s files again at that revision; if this is another model, give it another name.",
    )
