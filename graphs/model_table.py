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
TABLE_LIMIT_BYTES = 4 << 20  # the family's is 15 kB
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

    @property
    def aliases(self) -> frozenset[str]:
        """What it may be called: its name, its repository, and the repository without the organisation; in small."""
        names = (self.name, self.repository, self.repository.partition("/")[2])
        return frozenset(name.casefold() for name in names)


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
        aliases = [alias for entry in self.models for alias in entry.aliases]
        if len(set(aliases)) != len(aliases):
            raise ValueError("names repeat")

    @property
    def supported(self) -> tuple[ModelEntry, ...]:
        """The models that Vela exports, in order."""
        return tuple(entry for entry in self.models if entry.supported)

    def knows(self, name: str) -> bool:
        """Say whether a model is called that, supported or not."""
        return any(name.casefold() in entry.aliases for entry in self.models)

    def describing(self, folder: Path) -> ModelEntry | None:
        """Find the model whose configuration and tokenizer a checkpoint folder has; its weights are not read.

        What they say of a model that its files do not, such as an embedder's early exits, holds for any weights.
        """
        names = {name for entry in self.models for name in entry.files if not name.endswith(".safetensors")}
        found = {name: digests.sha256_of_file(folder / name) for name in names if (folder / name).is_file()}
        for entry in self.models:
            if all(found.get(name) == sha256 for name, sha256 in entry.files.items() if name in names):
                return entry
        return None

    def find(self, name: str) -> ModelEntry:
        """Find a model that can be exported, by name or repository, in any case.

        Raises:
            CheckpointError: no model is called that, or it is not supported; the message says which are.
        """
        supported = ", ".join(entry.name for entry in self.supported)
        for entry in self.models:
            if name.casefold() not in entry.aliases:
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


@cache
def load_table() -> ModelTable:
    """Read the table that ships with this package, checked as a whole.

    Raises:
        CheckpointError: the installed file is damaged.
    """
    content = resources.files("vela.graphs").joinpath(TABLE_FILE).read_bytes()
    return _decode(content, TABLE_FILE, "Install vela-onnx again.")


def read_table(path: Path) -> ModelTable:
    """Read another table, such as the one that `vela sample --family` writes beside its stand-ins.

    Raises:
        CheckpointError: it is too large, or does not validate.
    """
    with path.open("rb") as stream:
        content = stream.read(TABLE_LIMIT_BYTES + 1)
    if len(content) > TABLE_LIMIT_BYTES:
        raise _no_table(f"more than {TABLE_LIMIT_BYTES:,} bytes", path.name, "Name a table of models.")
    return _decode(content, path.name, "`vela models --json` prints one that validates.")


def find_model(name: str) -> ModelEntry:
    """Find a model of the table that ships; as `ModelTable.find`."""
    return load_table().find(name)


def encode_table(table: ModelTable) -> bytes:
    """Give the bytes of a table's file."""
    return msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n"


def _decode(content: bytes, name: str, fix: str) -> ModelTable:
    try:
        return msgspec.json.decode(content, type=ModelTable)
    except (msgspec.MsgspecError, RecursionError) as cause:
        raise _no_table(f"a model table that does not validate ({cause})", name, fix) from cause


def _no_table(found: str, where: str, fix: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found, expected=f"a table of models, schema version {SCHEMA_VERSION}", where=where, fix=fix
    )


def check_checkpoint(folder: Path, entry: ModelEntry) -> None:
    """Compare every file of a checkpoint with its pin, before anything of it is parsed.

    Links are followed: the Hub's cache keeps files as links to blobs. Other files may lie beside the pinned ones,
    unless they are of those that decide what the task is.

    Raises:
        CheckpointError: the first file that is missing, has other bytes, or decides the task without being pinned.
    """
    check_deciding_files(folder, entry)
    # Small files first: what is wrong with them is said before gigabytes are read.
    for name, sha256 in sorted(entry.files.items(), key=lambda item: (item[0].endswith(".safetensors"), item[0])):
        path = folder / name
        found = f"sha256 {digests.sha256_of_file(path)}" if path.is_file() else "no such file"
        if found != f"sha256 {sha256}":
            raise _not_as_pinned(found, f"sha256 {sha256}", path, entry)


def check_deciding_files(folder: Path, entry: ModelEntry) -> None:
    """Refuse a file beside the pinned ones that would decide what the task is.

    Raises:
        CheckpointError: there is one.
    """
    for name in task.DECIDING_FILES:
        if name not in entry.files and (folder / name).exists():
            raise _not_as_pinned("a file that the pinned model does not have", "none", folder / name, entry)


def _not_as_pinned(found: str, expected: str, path: Path, entry: ModelEntry) -> errors.CheckpointError:
    return errors.CheckpointError(
        found,
        expected=f"{expected}, as pinned for {entry.repository} at {entry.revision}",
        where=str(path),
        fix=f"Download {entry.name}'s files again at that revision; if this is another model, give it another name.",
    )
