"""manifest.json: what a bundle holds, frozen by export; every later statement binds to its digest.

It names every file of the checkpoint with its digest, every tensor that graphs refer to with its place, and every
graph with its shape, target and small inline tensors. Serve refuses what does not match; the gate derives the same
facts again from the checkpoint and the graphs and compares. The seal makes an edit visible even before any record
exists: it is a digest over the manifest itself, so a hand edit or a torn write cannot pass for what export wrote
(against a forger only a signature helps).
"""

import re
from pathlib import Path
from typing import Self

import msgspec

from vela.graphs import contract, digests, errors
from vela.graphs import heads as forms

SCHEMA_VERSION = 1
MANIFEST_LIMIT_BYTES = 64 << 20  # twenty graphs of a 307M checkpoint need 0.5 MB; untrusted input is bounded
# Names of models and graphs become names of files in a store and a bundle, and parts of URLs and metrics.
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Say whether a model or a graph may be called this."""
    return NAME_PATTERN.fullmatch(text) is not None


class SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the checkpoint, as it lies in the bundle."""

    sha256: str
    size_bytes: int


class WeightTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor of a safetensors file in the bundle that graphs may refer to.

    Attributes:
        file: File name in the bundle.
        name: Tensor name in that file.
        dtype: safetensors' type name, such as `F32`.
        shape: Dimensions.
        offset: First byte, from the start of the file.
        length: Bytes.
        sha256: Digest of those bytes.
    """

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int
    sha256: str


class InlineTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor whose values lie in the graph file itself."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ONNX file.

    Attributes:
        id: Name of the graph within the bundle, such as `model` or `portable-b1-s128`.
        file: File name in the bundle.
        sha256: Digest of the file.
        size_bytes: Size of the file, external data not counted.
        target: Which rules its operators follow.
        precision: Element type of its arithmetic.
        storage: Whether large tensors are references into the checkpoint's files.
        opset: Version of ai.onnx.
        head: Name of the head that it answers.
        exit_layer: Layers that it runs; the whole model's count where it has no early exit.
        inputs: In graph order.
        outputs: In graph order.
        external: Initializer name to tensor name in `Manifest.weights`; an initializer may be some of a tensor's rows.
        inline: Tensors that lie in the graph file.
    """

    id: str
    file: str
    sha256: str
    size_bytes: int
    target: contract.Target
    precision: contract.Precision
    storage: contract.WeightStorage
    opset: int
    head: str
    exit_layer: int
    inputs: tuple[contract.TensorSpec, ...]
    outputs: tuple[contract.TensorSpec, ...]
    external: dict[str, str]
    inline: tuple[InlineTensor, ...]

    def __post_init__(self) -> None:
        if not is_name(self.id):
            raise ValueError(f"a graph's id is letters, digits, '.', '_' and '-', got {self.id!r}")

    @property
    def batch(self) -> int | None:
        """Rows of the fixed batch, or None where any number goes."""
        dimension = self.inputs[0].shape[0]
        return dimension if isinstance(dimension, int) else None

    @property
    def sequence(self) -> int | None:
        """Tokens of the fixed sequence, or None where any length goes."""
        dimension = self.inputs[0].shape[1]
        return dimension if isinstance(dimension, int) else None

    @property
    def is_reduced(self) -> bool:
        """Whether it is a 16-bit copy of another graph."""
        return self.precision != "fp32"

    @property
    def takes_mask(self) -> bool:
        """Whether rows may be padded."""
        return any(tensor.name == contract.ATTENTION_MASK for tensor in self.inputs)

    def fits(self, rows: int, tokens: int) -> bool:
        """Say whether `rows` rows of at most `tokens` tokens can be fed to this graph."""
        return (self.batch is None or self.batch >= rows) and (self.sequence is None or self.sequence >= tokens)


class TokenizerFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How texts are framed; read from tokenizer.json at export, compared with it at load.

    Attributes:
        file: File name in the bundle.
        sha256: Its digest; models with equal digests share one tokenizer in a process.
        prefix: Special token ids before a text.
        separator: Special token ids between the two texts of a pair; empty where pairs are not framed.
        suffix: Special token ids after the last text.
        pad_id: Id that fills rows up to the bucket; it is always masked.
        vocabulary_size: Ids are below it; the graph's embedding table has at least that many rows.
    """

    file: str
    sha256: str
    prefix: tuple[int, ...]
    separator: tuple[int, ...]
    suffix: tuple[int, ...]
    pad_id: int
    vocabulary_size: int


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint this is.

    Attributes:
        name: The name it is served under.
        repository: Hub repository of a pinned model, else empty.
        revision: Commit of a pinned model, else empty.
        model_sha256: The pin's identity, else the digest over the checkpoint's file listing.
        model_type: `model_type` of config.json.
        hidden_size: H.
        layers: L.
        parameters: Number of weights in the safetensors files.
    """

    name: str
    repository: str
    revision: str
    model_sha256: str
    model_type: str
    hidden_size: int
    layers: int
    parameters: int

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ValueError(f"a model's name is letters, digits, '.', '_' and '-', got {self.name!r}")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole content of manifest.json."""

    schema_version: int
    model: Model
    sources: dict[str, SourceFile]
    weights: tuple[WeightTensor, ...]
    tokenizer: TokenizerFacts
    heads: tuple[forms.Head, ...]
    graphs: tuple[Graph, ...]
    tools: dict[str, str]
    seal: str = ""

    def __post_init__(self) -> None:
        for kind, names in {
            "graph ids": [graph.id for graph in self.graphs],
            "graph files": [graph.file for graph in self.graphs],
            "heads": [head.name for head in self.heads],
            "weights": [tensor.name for tensor in self.weights],
        }.items():
            if len(set(names)) != len(names):
                raise ValueError(f"{kind} repeat")
        self._check_references()
        files = {*self.sources, *(graph.file for graph in self.graphs)}
        taken = sorted(name for name in files if name.split("/")[0] in contract.RESERVED_NAMES)
        if taken or len(files) != len(self.sources) + len(self.graphs):
            raise ValueError(f"file names that mean two things: {taken or 'a graph is called like a checkpoint file'}")

    def _check_references(self) -> None:
        """Refuse names that lead nowhere: an unlisted file has no digest, so nothing would check its bytes."""
        tensors, listed_heads = {tensor.name for tensor in self.weights}, {head.name for head in self.heads}
        for graph in self.graphs:
            if graph.head not in listed_heads:
                raise ValueError(f"graph {graph.id} names the head {graph.head!r}, which is not listed")
            if unknown := set(graph.external.values()) - tensors:
                raise ValueError(f"graph {graph.id} refers to tensors that are not listed: {sorted(unknown)[:3]}")
        if unlisted := {tensor.file for tensor in self.weights} - set(self.sources):
            raise ValueError(f"weights lie in files that are not listed: {sorted(unlisted)}")
        tokenizer = self.sources.get(self.tokenizer.file)
        if tokenizer is None or tokenizer.sha256 != self.tokenizer.sha256:
            raise ValueError(f"the tokenizer {self.tokenizer.file!r} is not listed with the same digest")

    def sealed(self) -> Self:
        """Give this manifest with its seal computed."""
        return msgspec.structs.replace(self, seal=self._seal())

    def _seal(self) -> str:
        return digests.sha256_of_bytes(encode_manifest(msgspec.structs.replace(self, seal="")))

    def head(self, name: str = forms.DEFAULT_HEAD) -> forms.Head:
        """Give the head called `name`; KeyError where there is none."""
        return {head.name: head for head in self.heads}[name]

    def weight(self, name: str) -> WeightTensor:
        """Give the weight tensor called `name`; KeyError where there is none."""
        return {tensor.name: tensor for tensor in self.weights}[name]


def encode_manifest(manifest: Manifest) -> bytes:
    """Give the bytes that are written: indented JSON, so that people can read and diff it."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """Read, validate and unseal a manifest.

    Returns:
        The manifest, and the SHA-256 of its file, which records bind to.

    Raises:
        ManifestInvalid: it is missing, too large, malformed, of another schema version, or edited.
    """
    if not path.is_file() or path.stat().st_size > MANIFEST_LIMIT_BYTES:
        raise invalid_manifest("no manifest.json of a sane size", path.parent)
    content = path.read_bytes()
    try:
        version = msgspec.json.decode(content, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise invalid_manifest(f"schema version {version}", path.parent)
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as cause:
        raise invalid_manifest(f"content that does not validate ({cause})", path.parent) from cause
    if manifest != manifest.sealed():
        raise invalid_manifest("content that does not match its seal: it was edited after export", path.parent)
    return manifest, digests.sha256_of_bytes(content)


class _Versioned(msgspec.Struct, frozen=True):
    schema_version: int


def invalid_manifest(found: str, folder: Path) -> errors.ManifestInvalid:
    """Make the error for a manifest that cannot be used."""
    return errors.ManifestInvalid(
        found,
        expected=f"the manifest that `vela export` wrote (schema version {SCHEMA_VERSION})",
        where=f"{folder.name}/{contract.MANIFEST_FILE}",
        fix="Export the bundle again; a manifest is never edited.",
    )
