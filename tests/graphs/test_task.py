"""What a checkpoint's JSON files say its task is; every contradiction is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from vela.graphs import digests, errors, heads, task

LABELS = ("no", "yes", "maybe")
BIO = ("O", "B-EMAIL", "I-EMAIL", "B-AGE", "I-AGE")


def config_of(architecture: str, labels: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": [architecture],
        "max_position_embeddings": 512,
        "num_hidden_layers": 4,
        "hidden_size": 64,
    }
    if labels:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    return config | changes


def sequence(labels: tuple[str, ...] = LABELS, **changes: Any) -> dict[str, Any]:
    return config_of("ModernBertForSequenceClassification", labels, **changes)


def tokens(labels: tuple[str, ...] = BIO, **changes: Any) -> dict[str, Any]:
    return config_of("ModernBertForTokenClassification", labels, **changes)


MULTI = {"problem_type": "multi_label_classification"}
POLICY = {
    "strategy": "overlapping_content_windows",
    "window_tokens_including_special_tokens": 128,
    "overlap_content_tokens": 63,
    "max_document_tokens_including_special_tokens": 400,
}
SCORES = {
    "score_type": "independent_sigmoid",
    "comparison": "score >= threshold",
    "labels": list(LABELS),
    "thresholds": [0.1, 0.5, 0.9],
}
GROUNDED = {
    "max_input_tokens": 256,
    "token_threshold": 0.5,
    "threshold_comparison": "strictly_greater",
    "label2id": {"supported": 0, "hallucinated": 1},
    "input_pair": ["User request: {question}\n\n{context}", "answer"],
    "answer_offsets": "Unicode code points",
}
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def head_of(folder: Path, config: Any, **files: Any) -> heads.Head:
    """Write config.json and other JSON files (`a__b` is `a/b`), and read the head."""
    for name, content in {"config": config, **files}.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return task.read_head(folder)


def test_a_sequence_model_is_a_softmax_over_labels_in_index_order(tmp_path: Path) -> None:
    config = sequence()
    config["id2label"] = dict(reversed(config["id2label"].items()))

    found = head_of(tmp_path, config)

    assert found == heads.Head("default", "text", heads.SequenceDecoder(LABELS), 512, "reject")
    assert found.kind == "sequence"


def test_ten_and_more_labels_are_ordered_by_number_and_not_by_text(tmp_path: Path) -> None:
    labels = tuple(f"label {index}" for index in range(12))

    assert heads.labels_of(head_of(tmp_path, sequence(labels)).decoder) == labels


def test_label2id_may_be_missing(tmp_path: Path) -> None:
    config = sequence()
    del config["label2id"]

    assert heads.labels_of(head_of(tmp_path, config).decoder) == LABELS


@pytest.mark.parametrize(
    "changes",
    [
        {"label2id": {"no": 1, "yes": 0, "maybe": 2}},
        {"label2id": {"no": 0, "yes": 1}},
        {"label2id": {}},
        {"id2label": {"0": "no", "2": "yes"}},
        {"id2label": {"1": "no", "2": "yes"}},
        {"id2label": {}},
        {"id2label": None},
        {"id2label": ["no", "yes"]},
        {"problem_type": "regression"},
        {"architectures": []},
        {"architectures": ["A", "B"]},
        {"architectures": ["ModernBertForMaskedLM"]},
        {"architectures": ["LlamaForCausalLM"]},
        {"max_position_embeddings": 0},
        {"max_position_embeddings": True},
        {"max_position_embeddings": "512"},
    ],
)
def test_a_config_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(errors.CheckpointError, match=r"config\.json"):
        head_of(tmp_path, sequence() | changes)


def test_one_label_is_no_classification(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointError, match="1 labels"):
        head_of(tmp_path, sequence(("only",)))


def test_repeated_labels_are_refused(tmp_path: Path) -> None:
    config = sequence(("no", "yes"))
    config["id2label"]["1"] = "no"
    config["label2id"] = None

    with pytest.raises(errors.CheckpointError):
        head_of(tmp_path, config)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 200_000, "\ud800"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogatepass"))

    with pytest.raises(errors.CheckpointError, match=r"config\.json"):
        task.read_head(tmp_path)


def test_a_config_of_unreasonable_size_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(task.JSON_LIMIT_BYTES + 1)

    with pytest.raises(errors.CheckpointError, match="sane size"):
        task.read_head(tmp_path)


def test_a_multi_label_model_without_an_operating_point_selects_nothing(tmp_path: Path) -> None:
    found = head_of(tmp_path, sequence(**MULTI))

    assert found == heads.Head("default", "text", heads.ScoresDecoder(LABELS), 512, "reject")


def test_an_operating_point_gives_thresholds_windows_and_the_limit(tmp_path: Path) -> None:
    found = head_of(tmp_path, sequence(**MULTI), operating_point=SCORES | {"input_policy": POLICY, "schema": "v2"})

    sha256 = digests.sha256_of_file(tmp_path / "operating_point.json")
    point = heads.OperatingPoint("score >= threshold", (0.1, 0.5, 0.9), sha256)
    decoder = heads.ScoresDecoder(LABELS, point)
    assert found == heads.Head("default", "text", decoder, 400, "window", heads.Window(128, 63))


def test_a_document_limit_above_the_model_s_own_is_cut_to_it(tmp_path: Path) -> None:
    policy = POLICY | {"max_document_tokens_including_special_tokens": 32768}

    found = head_of(tmp_path, sequence(**MULTI), operating_point=SCORES | {"input_policy": policy})

    assert found.max_tokens == 512


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": ["yes", "no", "maybe"]},
        {"labels": ["no", "yes"]},
        {"thresholds": [0.5, 0.5]},
        {"thresholds": "high"},
        {"thresholds": [0.5, 0.5, float("nan")]},
        {"thresholds": [0.5, 0.5, float("inf")]},
        {"thresholds": [0.5, 0.5, 1.5]},
        {"thresholds": [0.5, 0.5, None]},
        {"comparison": "score < threshold"},
        {"score_type": "softmax"},
        {"input_policy": POLICY | {"strategy": "first_window"}},
        {"input_policy": {"strategy": "overlapping_content_windows"}},
        {"input_policy": POLICY | {"window_tokens_including_special_tokens": 1}},
        {"input_policy": POLICY | {"overlap_content_tokens": -1}},
        {"input_policy": POLICY | {"overlap_content_tokens": 126}},
        {"input_policy": POLICY | {"window_tokens_including_special_tokens": 1024}},
    ],
)
def test_an_operating_point_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(errors.CheckpointError, match=r"operating_point\.json"):
        head_of(tmp_path, sequence(**MULTI), operating_point=SCORES | changes)


def test_bio_labels_make_a_span_model(tmp_path: Path) -> None:
    found = head_of(tmp_path, tokens())

    assert found == heads.Head("default", "text", heads.BioDecoder(BIO), 512, "reject")


@pytest.mark.parametrize(
    "labels",
    [("B-A", "I-A"), ("O", "B-A"), ("O", "B-A", "I-B"), ("O", "B-A", "I-A", "A"), ("no", "yes"), ("O", "I-A")],
)
def test_token_labels_that_are_no_bio_scheme_are_refused(tmp_path: Path, labels: tuple[str, ...]) -> None:
    with pytest.raises(errors.CheckpointError, match="token labels"):
        head_of(tmp_path, tokens(labels))


def test_an_operating_point_makes_a_token_model_grounded(tmp_path: Path) -> None:
    found = head_of(tmp_path, tokens(("supported", "hallucinated")), operating_point=GROUNDED)

    sha256 = digests.sha256_of_file(tmp_path / "operating_point.json")
    decoder = heads.GroundedDecoder(("supported", "hallucinated"), 1, 0.5, sha256)
    assert found == heads.Head("default", "grounded", decoder, 256, "reject")
    assert found.kind == "token"


@pytest.mark.parametrize(
    "changes",
    [
        {"label2id": {"supported": 1, "hallucinated": 0}},
        {"threshold_comparison": "at_least"},
        {"input_pair": ["answer", "context"]},
        {"token_threshold": "half"},
        {"token_threshold": float("nan")},
        {"max_input_tokens": None},
        {"max_input_tokens": 0},
    ],
)
def test_a_grounded_operating_point_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(errors.CheckpointError, match=r"operating_point\.json"):
        head_of(tmp_path, tokens(("supported", "hallucinated")), operating_point=GROUNDED | changes)


def test_an_embedder_without_exits_is_one_of_its_whole_depth_and_width(tmp_path: Path) -> None:
    found = head_of(tmp_path, config_of("ModernBertModel"), **{"1_Pooling__config": MEAN})

    assert found == heads.Head("default", "text", heads.EmbeddingDecoder((4,), (64,)), 512, "reject")


def test_exits_are_ascending_and_dimensions_descending(tmp_path: Path) -> None:
    declared = {"exit_layers": [4, 1, 2], "dimensions": [16, 64, 32]}

    found = head_of(tmp_path, config_of("ModernBertModel"), matryoshka_config=declared, **{"1_Pooling__config": MEAN})

    assert found.decoder == heads.EmbeddingDecoder((1, 2, 4), (64, 32, 16))


@pytest.mark.parametrize(
    "declared",
    [
        {"exit_layers": [5], "dimensions": [64]},
        {"exit_layers": [1, 2], "dimensions": [64]},
        {"exit_layers": [0, 4], "dimensions": [64]},
        {"exit_layers": [4], "dimensions": [65]},
        {"exit_layers": [4], "dimensions": [0]},
        {"exit_layers": [], "dimensions": []},
        {"exit_layers": [4]},
        {"exit_layers": "all", "dimensions": [64]},
    ],
)
def test_exits_that_the_model_does_not_have_are_refused(tmp_path: Path, declared: dict[str, Any]) -> None:
    with pytest.raises(errors.CheckpointError, match=r"matryoshka_config\.json"):
        head_of(tmp_path, config_of("ModernBertModel"), matryoshka_config=declared, **{"1_Pooling__config": MEAN})


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_cls_token": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        {"pooling_mode_lasttoken": True},
        {},
    ],
)
def test_an_embedder_that_does_not_pool_by_the_mean_is_refused(tmp_path: Path, pooling: dict[str, Any]) -> None:
    with pytest.raises(errors.CheckpointError, match="pooling"):
        head_of(tmp_path, config_of("ModernBertModel"), **{"1_Pooling__config": pooling})


def test_an_embedder_without_a_pooling_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointError, match="1_Pooling"):
        head_of(tmp_path, config_of("ModernBertModel"))


def test_scorers_beside_the_encoder_make_a_reranker(tmp_path: Path) -> None:
    (tmp_path / "classification_heads.safetensors").write_bytes(b"")
    declared = {"exit_layers": [2, 4], "dimensions": [64, 32]}

    found = head_of(tmp_path, config_of("ModernBertModel"), matryoshka_config=declared)

    assert found == heads.Head("default", "pair", heads.RerankDecoder((2, 4), (64, 32)), 512, "reject")
