"""What a checkpoint folder says its task is: its heads, read from its JSON files alone.

Export writes the result into the manifest; the gate reads it again from the reference checkpoint and compares, so a
bundle whose labels, thresholds or windows were altered does not agree with itself. Labels and orders are never
hard-coded: `id2label`, `problem_type` and the operating point decide.
"""

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, cast

import msgspec

from vela.graphs import digests, errors, heads

JSON_LIMIT_BYTES = 32 << 20  # config.json and its neighbours are kilobytes; tokenizer.json has its own reader
OPERATING_POINT_FILE = "operating_point.json"
MATRYOSHKA_FILE = "matryoshka_config.json"
POOLING_FILE = "1_Pooling/config.json"
RERANK_HEADS_FILE = "classification_heads.safetensors"
# Files whose mere presence changes what a checkpoint's task is taken to be.
DECIDING_FILES = (OPERATING_POINT_FILE, MATRYOSHKA_FILE, POOLING_FILE, RERANK_HEADS_FILE)
GROUNDED_PROMPT = "User request: {question}\n\n{context}"  # Source: upstream's Halu operating point, `input_pair`

Point = TypeVar("Point", bound=msgspec.Struct)
Count = Annotated[int, msgspec.Meta(ge=1)]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
SPECIAL_TOKENS = 2  # of a framed text in this family; a window holds them and at least one token of its own


class Depths(msgspec.Struct, frozen=True):
    """Where an embedder or reranker can stop, and to what it can be cut.

    Attributes:
        exit_layers: Layer counts, in any order.
        dimensions: Widths, in any order.
    """

    exit_layers: tuple[int, ...]
    dimensions: tuple[int, ...]


class _InputPolicy(msgspec.Struct, frozen=True):
    strategy: str
    window_tokens_including_special_tokens: Count
    overlap_content_tokens: Annotated[int, msgspec.Meta(ge=0)]
    max_document_tokens_including_special_tokens: Count


class _ScoresPoint(msgspec.Struct, frozen=True):
    score_type: str
    comparison: str
    labels: list[str]
    thresholds: list[Probability]
    input_policy: _InputPolicy | None = None


class _GroundedPoint(msgspec.Struct, frozen=True):
    max_input_tokens: Count
    token_threshold: Probability
    threshold_comparison: str
    label2id: dict[str, int]
    input_pair: list[str]


def read_json(path: Path) -> dict[str, Any]:
    """Read a checkpoint's JSON object.

    Raises:
        CheckpointError: it is missing, too large, not JSON, or no object.
    """
    if not path.is_file() or path.stat().st_size > JSON_LIMIT_BYTES:
        raise _unusable(path.name, "no file of a sane size", "a JSON file of the checkpoint")
    try:
        content = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as cause:
        raise _unusable(path.name, f"content that is not JSON ({cause})", "a JSON object") from cause
    if not isinstance(content, dict):
        raise _unusable(path.name, f"a JSON {type(content).__name__}", "a JSON object")
    return cast("dict[str, Any]", content)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON, and no threshold")  # Python's reader takes NaN; nothing compares with it


def read_head(folder: Path, pinned: Depths | None = None) -> heads.Head:
    """Read the head that a checkpoint folder describes.

    Args:
        folder: The checkpoint.
        pinned: What is known of the model where its files do not say: upstream's embedder has early exits, and no
            file that lists them. A file that does decides.

    Raises:
        CheckpointError: the task is not supported, or the files contradict each other.
    """
    config = read_json(folder / "config.json")
    architectures = config.get("architectures") or []
    if len(architectures) != 1:
        raise _unusable("config.json", f"architectures {architectures}", "exactly one architecture")
    architecture = str(architectures[0])
    max_tokens = _positive_integer(config, "max_position_embeddings")
    if architecture.endswith("ForSequenceClassification"):
        return _sequence_head(folder, config, max_tokens)
    if architecture.endswith("ForTokenClassification"):
        return _token_head(folder, config, max_tokens)
    if (folder / RERANK_HEADS_FILE).is_file():
        exits, dimensions = _matryoshka(folder, config, pinned)
        decoder = heads.RerankDecoder(exits, dimensions)
        return heads.Head(heads.DEFAULT_HEAD, "pair", decoder, max_tokens, "reject")
    if architecture.endswith("Model") and not architecture.endswith("HeadModel"):
        _check_mean_pooling(folder)
        exits, dimensions = _matryoshka(folder, config, pinned)
        embedding = heads.EmbeddingDecoder(exits, dimensions)
        return heads.Head(heads.DEFAULT_HEAD, "text", embedding, max_tokens, "reject")
    raise _unusable("config.json", f"architecture {architecture!r}", "a sequence, token or embedding model")


def _sequence_head(folder: Path, config: dict[str, Any], max_tokens: int) -> heads.Head:
    labels = read_labels(config)
    problem = config.get("problem_type") or "single_label_classification"
    if problem == "single_label_classification" and len(labels) > 1:
        return heads.Head(heads.DEFAULT_HEAD, "text", heads.SequenceDecoder(labels), max_tokens, "reject")
    if problem != "multi_label_classification":
        raise _unusable("config.json", f"problem_type {problem!r} with {len(labels)} labels", "a classification task")
    path = folder / OPERATING_POINT_FILE
    if not path.is_file():
        return heads.Head(heads.DEFAULT_HEAD, "text", heads.ScoresDecoder(labels), max_tokens, "reject")
    point = _decode_point(path, _ScoresPoint)
    if point.score_type != "independent_sigmoid" or point.comparison not in ("score >= threshold", "score > threshold"):
        found = f"{point.score_type!r} with {point.comparison!r}"
        raise _unusable(path.name, found, "independent_sigmoid with >= or >")
    if tuple(point.labels) != labels or len(point.thresholds) != len(labels):
        raise _unusable(path.name, "labels that are not id2label's, in its order", "one threshold for each label")
    operating = heads.OperatingPoint(
        cast("Any", point.comparison), tuple(point.thresholds), digests.sha256_of_file(path)
    )
    decoder = heads.ScoresDecoder(labels, operating)
    if point.input_policy is None:
        return heads.Head(heads.DEFAULT_HEAD, "text", decoder, max_tokens, "reject")
    window = _window(path, point.input_policy, max_tokens)
    limit = min(max_tokens, point.input_policy.max_document_tokens_including_special_tokens)
    return heads.Head(heads.DEFAULT_HEAD, "text", decoder, limit, "window", window)


def _window(path: Path, policy: _InputPolicy, max_tokens: int) -> heads.Window:
    if policy.strategy != "overlapping_content_windows":
        raise _unusable(path.name, f"input policy {policy.strategy!r}", "overlapping_content_windows")
    tokens, overlap = policy.window_tokens_including_special_tokens, policy.overlap_content_tokens
    if tokens > max_tokens or overlap >= tokens - SPECIAL_TOKENS:
        found = f"windows of {tokens} tokens that share {overlap}"
        raise _unusable(path.name, found, f"windows of up to {max_tokens} tokens that move on")
    return heads.Window(tokens, overlap)


def _token_head(folder: Path, config: dict[str, Any], max_tokens: int) -> heads.Head:
    labels = read_labels(config)
    path = folder / OPERATING_POINT_FILE
    if path.is_file():
        point = _decode_point(path, _GroundedPoint)
        if point.threshold_comparison != "strictly_greater" or point.input_pair != [GROUNDED_PROMPT, "answer"]:
            raise _unusable(path.name, f"{point.threshold_comparison}, {point.input_pair}", "the grounded pair's rules")
        if {label: index for index, label in enumerate(labels)} != point.label2id or len(labels) != 2:
            raise _unusable(path.name, f"label2id {point.label2id}", f"two labels as in config.json: {labels}")
        decoder = heads.GroundedDecoder(labels, 1, point.token_threshold, digests.sha256_of_file(path))
        limit = min(max_tokens, point.max_input_tokens)
        return heads.Head(heads.DEFAULT_HEAD, "grounded", decoder, limit, "reject")
    begins = {label[2:] for label in labels if label.startswith("B-")}
    inside = {label[2:] for label in labels if label.startswith("I-")}
    if "O" not in labels or begins != inside or len(labels) != 1 + 2 * len(begins):
        raise _unusable("config.json", f"token labels {labels[:6]}", "O, and B- and I- for each type")
    return heads.Head(heads.DEFAULT_HEAD, "text", heads.BioDecoder(labels), max_tokens, "reject")


def read_labels(config: dict[str, Any]) -> tuple[str, ...]:
    """Read labels in index order from `id2label`.

    Raises:
        CheckpointError: indices are not 0..C-1, or `label2id` contradicts them.
    """
    table = config.get("id2label")
    if not isinstance(table, dict) or sorted(map(str, table)) != sorted(map(str, range(len(table)))):
        raise _unusable("config.json", f"id2label with keys {list(table or [])[:4]}", "indices 0 to C-1")
    labels = tuple(str(table[str(index)]) for index in range(len(table)))
    if len(set(labels)) != len(labels):
        raise _unusable("config.json", "labels that repeat", "one name for each label")
    inverse = config.get("label2id")
    if inverse is not None and inverse != {label: index for index, label in enumerate(labels)}:
        raise _unusable("config.json", "a label2id that contradicts id2label", "one order of labels")
    return labels


def _matryoshka(folder: Path, config: dict[str, Any], pinned: Depths | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Read exit depths (ascending) and dimensions (descending); where nothing says, the whole model at full width."""
    layers, hidden = _positive_integer(config, "num_hidden_layers"), _positive_integer(config, "hidden_size")
    path = folder / MATRYOSHKA_FILE
    declared = pinned or Depths((layers,), (hidden,))
    if path.is_file():
        try:
            declared = msgspec.convert(read_json(path), Depths)
        except msgspec.ValidationError as cause:
            found = f"fields that do not fit ({cause})"
            raise _unusable(path.name, found, "exit_layers and dimensions, lists of numbers") from cause
    exits, dimensions = declared.exit_layers, declared.dimensions
    sane = exits and dimensions and max(exits) == layers and min(exits) > 0 and 0 < min(dimensions) <= hidden
    if not sane or max(dimensions) > hidden:
        found = f"exits {exits}, dimensions {dimensions}"
        raise _unusable(path.name, found, f"exits up to {layers}, dimensions up to {hidden}")
    return tuple(sorted(set(exits))), tuple(sorted(set(dimensions), reverse=True))


def _check_mean_pooling(folder: Path) -> None:
    path = folder / POOLING_FILE
    if not path.is_file():
        raise _unusable(POOLING_FILE, "no file", "the sentence-transformers pooling that the embedder was trained with")
    pooling = read_json(path)
    modes = [key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True]
    if modes != ["pooling_mode_mean_tokens"] and pooling.get("pooling_mode") != "mean":
        raise _unusable(POOLING_FILE, f"pooling modes {modes}", "mean over tokens")


def _decode_point(path: Path, kind: type[Point]) -> Point:
    try:
        return msgspec.convert(read_json(path), kind)
    except msgspec.ValidationError as cause:
        raise _unusable(path.name, f"fields that do not fit ({cause})", "the schema of the task's head") from cause


def _positive_integer(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _unusable("config.json", f"{key} = {value!r}", "a positive whole number")
    return value


def _unusable(where: str, found: str, expected: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found, expected=expected, where=where, fix="Export a checkpoint of a supported task, with all of its files."
    )
