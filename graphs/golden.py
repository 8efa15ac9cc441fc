"""Golden answers: a few inputs with the checkpoint's own answers, asked of every graph whenever it is loaded.

A verdict says that a graph answered like its checkpoint on the engine that judged it. Golden answers say it of this
process: another build, a damaged compile cache or a stale graph under consistent digests shows before the first caller
does. The gate writes them after a pass, from the inputs that best separate mutants of the checkpoint.
"""

import math
from typing import Literal

import msgspec

from vela.graphs import bundle as bundles
from vela.graphs import contract, digests, durable, errors, member

SCHEMA_VERSION: Literal[1] = 1
MOST_PROBES = 32
MOST_TOKENS = 8192
LIMIT_BYTES = 16 << 20
WIDEST_BOUND = 0.05  # whoever allows more, proves nothing

EngineClass = Literal["cpu", "gpu"]


class Values(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One output, without the batch dimension: its shape, and its numbers in row order."""

    shape: tuple[int, ...]
    numbers: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape) or math.prod(self.shape) != len(self.numbers):
            raise ValueError(f"{len(self.numbers)} numbers for the shape {self.shape}")


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input and the checkpoint's answer.

    Attributes:
        case_id: Where the input came from.
        ids: Token ids with special tokens.
        outputs: By name: logits before softmax, raw pooled vectors, or a pair's relevance logits.
    """

    case_id: str
    ids: tuple[int, ...]
    outputs: dict[str, Values]

    def __post_init__(self) -> None:
        if not 0 < len(self.ids) <= MOST_TOKENS or not self.outputs:
            raise ValueError(f"{self.case_id}: {len(self.ids)} tokens and {len(self.outputs)} outputs")


class Golden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of golden.json.

    Attributes:
        schema_version: Of this shape.
        manifest_sha256: The bundle that it is about.
        checkpoint_sha256: Over the listing of the checkpoint's files.
        reference: What gave the answers.
        command: What wrote it.
        tools: Versions of what wrote it.
        bounds: Largest |Δ| of any number, in the units of the output, by class of engine.
        probes: Those that separate mutants best come first.
    """

    schema_version: Literal[1]
    manifest_sha256: str
    checkpoint_sha256: str
    reference: str
    command: str
    tools: dict[str, str]
    bounds: dict[EngineClass, float]
    probes: tuple[Probe, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.probes) <= MOST_PROBES:
            raise ValueError(f"1 to {MOST_PROBES} probes, got {len(self.probes)}")
        if set(self.bounds) != {"cpu", "gpu"} or not all(0 < bound <= WIDEST_BOUND for bound in self.bounds.values()):
            raise ValueError(f"bounds for cpu and gpu above 0 and up to {WIDEST_BOUND}, got {self.bounds}")
        if not digests.is_sha256(self.manifest_sha256):
            raise ValueError(f"manifest_sha256 {self.manifest_sha256!r}")


def write(bundle: bundles.Bundle, content: Golden) -> None:
    """Write a bundle's golden answers, whole or not at all."""
    target = bundle.folder / contract.GOLDEN_FILE
    staging = target.with_suffix(".partial")
    staging.unlink(missing_ok=True)
    durable.write_file(staging, msgspec.json.encode(content) + b"\n")
    durable.rename(staging, target)


def remove(bundle: bundles.Bundle) -> None:
    """Take golden answers back: a graph has no pass any more."""
    (bundle.folder / contract.GOLDEN_FILE).unlink(missing_ok=True)


def read(bundle: bundles.Bundle) -> Golden | None:
    """Read a bundle's golden answers; None where it has none.

    Raises:
        BundleError: they cannot be read, or are another bundle's.
    """
    try:
        content = member.read_member(bundle.folder, contract.GOLDEN_FILE, LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise _unusable(member.describe(cause, bundle.folder, contract.GOLDEN_FILE)) from cause
    try:
        found = msgspec.json.decode(content, type=Golden)
    except (msgspec.MsgspecError, RecursionError) as cause:
        raise _unusable(f"content that is none ({cause})") from cause
    if found.manifest_sha256 != bundle.manifest_sha256:
        raise _unusable(f"answers for the manifest {found.manifest_sha256[:12]}")
    return found


def _unusable(found: str) -> errors.BundleError:
    return errors.BundleError(
        found,
        expected="golden answers for this very bundle, or none",
        where=contract.GOLDEN_FILE,
        fix="Run `vela verify-graph` on the bundle again: it writes them after a pass.",
    )
