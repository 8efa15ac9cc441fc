"""Faults of what is stated: the manifest's own facts, and the checkpoint's files from which answers are decoded.

A forger who reseals leaves a manifest that agrees with the files; what remains is that neither is the checkpoint's.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.fault import TEXT_SAMPLE, Fault
from lab.sketch import NotApplicable
from lab.workbench import Bench

Content = dict[str, Any]
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
ACCESSORY = "special_tokens_map.json"


def state(bench: Bench, change: Callable[[Bench, Content], str]) -> str:
    """Let the manifest say something else, sealed."""
    drawn = ""

    def apply(content: Content) -> None:
        nonlocal drawn
        drawn = change(bench, content)

    bench.reseal(apply)
    return drawn


def _graph(bench: Bench, content: Content) -> Content:
    return next(graph for graph in content["graphs"] if graph["id"] == bench.graph_id)


def _another_digest(bench: Bench, content: Content) -> str:
    content["sources"][CONFIG]["sha256"] = "0" * 64
    return CONFIG


def _missing_file(bench: Bench, content: Content) -> str:
    content["sources"]["merges.txt"] = {"sha256": "0" * 64, "size_bytes": 1}
    return "merges.txt"


def _other_types(bench: Bench, content: Content) -> str:
    for spec in _graph(bench, content)["inputs"]:
        spec["dtype"] = "int32"
    return "inputs of int32"


def _other_target(bench: Bench, content: Content) -> str:
    graph = _graph(bench, content)
    if graph["target"] == "portable":
        raise NotApplicable("a portable graph keeps the rules of every target")
    graph["target"] = "portable"
    return "portable for ort"


def _other_references(bench: Bench, content: Content) -> str:
    graph = _graph(bench, content)
    external = graph["external"]
    names = sorted(external)
    # parts of one tensor refer to the same: to exchange those is no fault
    pairs = [pair for pair in itertools.combinations(names, 2) if len({external[name] for name in pair}) == 2]
    if not pairs:
        raise NotApplicable("no two references")
    first, second = bench.pick(pairs)
    external[first], external[second] = external[second], external[first]
    return f"{first} and {second}"


def _other_constants(bench: Bench, content: Content) -> str:
    entry = bench.pick(_graph(bench, content)["inline"])
    entry["sha256"] = "f" * 64
    return entry["name"]


def _other_storage(bench: Bench, content: Content) -> str:
    graph = _graph(bench, content)
    graph["storage"] = "embedded" if graph["storage"] == "reference" else "reference"
    return graph["storage"]


def _other_identity(bench: Bench, content: Content) -> str:
    content["model"]["model_sha256"] = "1" * 64
    return "another checkpoint's digest"


def _other_revision(bench: Bench, content: Content) -> str:
    content["model"] |= {"repository": "llm-semantic-router/mom-mmbert", "revision": "2" * 40}
    return "a repository and revision"


def _exchange_labels(bench: Bench, content: Content) -> str:
    labels = content["heads"][0]["decoder"].get("labels", ())
    if len(labels) < 2:
        raise NotApplicable("no labels")
    first, second = bench.rng.choice(len(labels), 2, replace=False).tolist()
    labels[first], labels[second] = labels[second], labels[first]
    return f"labels {first} and {second}"


def _other_threshold(bench: Bench, content: Content) -> str:
    decoder = content["heads"][0]["decoder"]
    if decoder.get("operating_point"):
        decoder["operating_point"]["thresholds"][0] *= 0.9
    elif "threshold" in decoder:
        decoder["threshold"] *= 0.9
    else:
        raise NotApplicable("no threshold")
    return "a threshold is a tenth lower"


def _other_comparison(bench: Bench, content: Content) -> str:
    content["heads"][0]["decoder"]["operating_point"]["comparison"] = "score > threshold"
    return "> for >="


def _other_overflow(bench: Bench, content: Content) -> str:
    content["heads"][0]["overflow"] = "truncate"
    return "long texts are cut in silence"


def _other_pad(bench: Bench, content: Content) -> str:
    content["tokenizer"]["pad_id"] = 3
    return "pads are <unk>"


def edit_source(bench: Bench, name: str, change: Callable[[Content], None]) -> str:
    """Alter a JSON file of the checkpoint in the bundle, resealed."""
    bench.edit_json(name, change)
    bench.reseal()
    return name


def _swap_thetas(config: Content) -> None:
    if "global_rope_theta" not in config:
        raise NotApplicable("keys of the newer generation")
    thetas = config["global_rope_theta"], config["local_rope_theta"]
    config["local_rope_theta"], config["global_rope_theta"] = thetas


def _swap_first_labels(config: Content) -> None:
    table = config["id2label"]
    table["0"], table["1"] = table["1"], table["0"]
    config["label2id"] = {label: int(index) for index, label in table.items()}


def _drop_special_tokens(tokenizer: Content) -> None:
    tokenizer["post_processor"] = None


def _exchange_words(tokenizer: Content) -> None:
    words = tokenizer["model"]["vocab"]
    first, second = list(words)[-2:]
    words[first], words[second] = words[second], words[first]


def _lower_case(tokenizer: Content) -> None:
    before = tokenizer["normalizer"]
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, before]}


def _truncate(tokenizer: Content) -> None:
    tokenizer["truncation"] = {"direction": "Right", "max_length": 32, "strategy": "LongestFirst", "stride": 0}


def _stated(name: str, change: Callable[[Bench, Content], str], *, only: str = "", **more: Any) -> Fault:
    return Fault(name, more.pop("family", "packaging"), partial(state, change=change), only=only, **more)


FAULTS = (
    _stated("the manifest has another digest for a file", _another_digest, only="sources.digests"),
    _stated("the manifest lists a file that is not there", _missing_file, only="sources.digests"),
    _stated("the manifest has other types of inputs", _other_types),
    _stated("the manifest has another target", _other_target),
    _stated("the manifest exchanges two references", _other_references),
    _stated("the manifest has another digest for a constant", _other_constants),
    _stated("the manifest has another storage", _other_storage),
    _stated("the manifest has another checkpoint's identity", _other_identity),
    _stated("the manifest claims a repository and a revision", _other_revision),
    _stated("the manifest exchanges two labels", _exchange_labels, only="manifest.facts", family="decoding"),
    _stated(
        "the manifest has another threshold",
        _other_threshold,
        family="decoding",
        samples=("tiny-multilabel", "tiny-grounded"),
    ),
    _stated(
        "the manifest compares thresholds otherwise", _other_comparison, family="decoding", samples=("tiny-multilabel",)
    ),
    _stated("the manifest cuts long texts", _other_overflow, family="decoding"),
    _stated("the manifest has another pad", _other_pad, family="tokenizer"),
    Fault(
        "a file that no graph needs is altered",
        "packaging",
        partial(edit_source, name=ACCESSORY, change=lambda content: content.update(cls_token="<bos>")),
        only="sources.identity",
    ),
    *(
        Fault(name, family, partial(edit_source, name=file, change=change), samples)
        for name, family, file, change, samples in (
            ("config.json has its thetas exchanged", "packaging", CONFIG, _swap_thetas, (TEXT_SAMPLE,)),
            ("config.json has two labels exchanged", "decoding", CONFIG, _swap_first_labels, (TEXT_SAMPLE,)),
            (
                "config.json has another problem type",
                "decoding",
                CONFIG,
                lambda config: config.update(problem_type="multi_label_classification"),
                (TEXT_SAMPLE,),
            ),
            (
                "config.json has another pooling",
                "decoding",
                CONFIG,
                lambda config: config.update(classifier_pooling="cls"),
                (TEXT_SAMPLE,),
            ),
            (
                "the operating point has another threshold",
                "decoding",
                "operating_point.json",
                lambda point: point["thresholds"].__setitem__(0, 0.01),
                ("tiny-multilabel",),
            ),
            ("the tokenizer adds no special tokens", "tokenizer", TOKENIZER, _drop_special_tokens, ()),
            ("the tokenizer has two words exchanged", "tokenizer", TOKENIZER, _exchange_words, ()),
            ("the tokenizer writes everything small", "tokenizer", TOKENIZER, _lower_case, ()),
            ("the tokenizer truncates", "tokenizer", TOKENIZER, _truncate, ()),
        )
    ),
)
