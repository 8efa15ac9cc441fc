"""Is the bundle the checkpoint's: the same files, the bytes that the manifest names, and no fact altered.

The reference is named apart from the bundle, because a bundle whose config was altered before export agrees with
itself. Everything that export wrote into the manifest is derived here again from the reference checkpoint.
"""

from collections.abc import Sequence

from vela.graphs import bundle, causes, contract, digests, errors, manifest, model_table
from vela.serve import tokenization
from vela.verify import checkpoint

NAMED = 4  # files that a message names
TOKENIZER_FILES = ("tokenizer", "special_tokens_map", "added_tokens", "vocab", "merges")  # beginnings of their names


def check_sources(opened: bundle.Bundle, source: checkpoint.Checkpoint) -> str:
    """Compare the bundle's checkpoint files with the reference checkpoint's, file by file.

    The bundle's files are read again here, whatever the manifest says of them.

    Raises:
        DigestMismatch: files differ, are missing, or are added; each is named.
    """
    expected = source.listing()
    actual = checkpoint.listing(opened.folder)
    actual = {name: sha256 for name, sha256 in actual.items() if name in opened.manifest.sources or name in expected}
    differing = sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name))
    if differing:
        raise errors.DigestMismatch(
            f"{len(differing)} of {len(expected)} files that are not the reference checkpoint's: "
            + ", ".join(_describe(name, actual, expected) for name in differing[:NAMED]),
            expected="the reference checkpoint's files, byte for byte",
            where=opened.folder.name,
            fix="The bundle was exported from another or an altered checkpoint, or changed since: export it again.",
            cause=_cause(differing),
        )
    return f"{len(expected)} files equal the reference checkpoint's"


def check_facts(opened: bundle.Bundle, source: checkpoint.Checkpoint, table: model_table.ModelTable) -> str:
    """Derive the manifest's facts again from the reference checkpoint and compare.

    Raises:
        ManifestInvalid: naming each entry that differs.
    """
    written = opened.manifest
    tokenizer = tokenization.facts_from_tokenizer(
        source.folder / written.tokenizer.file, pad_id=int(source.config["pad_token_id"])
    )
    pairs = {
        "heads": (written.heads, (source.head,)),
        "tokenizer": (written.tokenizer, tokenizer),
        "weights": (written.weights, source.weight_tensors()),
        "model type": (written.model.model_type, source.config["model_type"]),
        "hidden size": (written.model.hidden_size, source.architecture.hidden_size),
        "layers": (written.model.layers, source.architecture.layers),
        "parameters": (written.model.parameters, source.parameter_count),
        "identity": (_identity(written.model) in _identities(written, table), True),
    }
    differing = [name for name, (actual, expected) in pairs.items() if actual != expected]
    if differing:
        raise errors.ManifestInvalid(
            f"other {', '.join(differing)} than the reference checkpoint has",
            expected="the facts that export reads from it",
            where=f"{opened.folder.name}/{contract.MANIFEST_FILE}",
            fix="The bundle is of another checkpoint, or its manifest was altered: export it again.",
        )
    return f"{len(pairs)} groups of facts derived again"


def _identity(model: manifest.Model) -> tuple[str, str, str]:
    return model.repository, model.revision, model.model_sha256


def _identities(written: manifest.Manifest, table: model_table.ModelTable) -> set[tuple[str, str, str]]:
    """Give what a bundle of these files may say it is: its own listing's digest, or a model that the table pins so.

    The files' digests are the manifest's own: whether they are the reference's is another check.
    """
    listing = {name: file.sha256 for name, file in written.sources.items()}
    pinned = {
        (entry.repository, entry.revision, entry.model_sha256)
        for entry in table.models
        if entry.files.items() <= listing.items()
    }
    return pinned | {("", "", digests.digest_of_listing(listing))}


def _cause(differing: Sequence[str]) -> causes.Cause:
    """Name the kind of checkpoint that it is, by the most telling of its files that differ."""
    if any(name.endswith(".safetensors") for name in differing):
        return "other weights"
    return "tokenizer" if all(name.startswith(TOKENIZER_FILES) for name in differing) else "config altered"


def _describe(name: str, actual: dict[str, str], expected: dict[str, str]) -> str:
    if name not in actual:
        return f"{name} (missing)"
    if name not in expected:
        return f"{name} (not in the checkpoint)"
    return f"{name} (sha256 {actual[name][:12]}… for {expected[name][:12]}…)"
