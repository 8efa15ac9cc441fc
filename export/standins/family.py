"""Write the twelve stand-ins, and the model table that pins them as the one that ships pins the real ones.

Weights are drawn, not trained, so labels mean nothing. But they are drawn so that what could go wrong would show:
attention looks at some tokens more than at others, and logits lie apart. All models start from one encoder and differ
from it by a few percent, as fine-tuned siblings do, so a graph of a sibling answers nearly right.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from transformers import (
    ModernBertConfig,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    PreTrainedModel,
)
from transformers.utils import logging

from vela.export.standins import forms
from vela.export.standins import tokenizer as tokenizers
from vela.graphs import digests, durable, errors, heads, model_table, scorers, task
from vela.verify import rows

VOCABULARY = 2048
HIDDEN_SIZE = 96
HEADS = 4
INTERMEDIATE_SIZE = 144
LOCAL_ATTENTION = 32
THETA = 160_000.0  # of full and of local layers alike, as mmBERT has it
ENCODER_SEED = 1_307
SIBLING_SHARE = 0.05  # of a weight's spread by which siblings differ
# Of a product's weights, times one over the square root of its inputs. At 1 scores of attention spread by 1 and a
# mistake in angles or windows hardly moves an answer; at 2 a layer looks at a few tokens only.
GAIN = 1.5
NORM_SPREAD = 0.1
REVISION_DIGITS = model_table.REVISION_DIGITS
CLASSES: Mapping[str, type[PreTrainedModel]] = {
    "ModernBertForSequenceClassification": ModernBertForSequenceClassification,
    "ModernBertForTokenClassification": ModernBertForTokenClassification,
    "ModernBertModel": ModernBertModel,
}
Progress = Callable[[str], None]
Weights = dict[str, NDArray[np.float32]]


def write_family(out: Path, progress: Progress) -> model_table.ModelTable:
    """Write the stand-ins into `out/<name>` in small letters, and `out/models.json`.

    Args:
        out: Folder to make; it must not exist, or be empty.
        progress: Told what is being done.

    Raises:
        ExportError: there is something in the folder.
    """
    if out.exists() and any(out.iterdir()):
        raise errors.ExportError(
            "a folder that is not empty", expected="no folder", where=str(out), fix="Remove it, or choose another."
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise errors.ExportError(
            f"a place where no folder can be made ({cause.strerror})",
            expected="a place that you may write to",
            where=str(out),
            fix="Choose another.",
        ) from cause
    corpus = [row.text for row in rows.read_corpus().texts]
    progress(f"a tokenizer of {VOCABULARY} pieces from {len(corpus)} texts")
    trained = tokenizers.build_tokenizer(corpus, VOCABULARY)
    entries = []
    for index, entry in enumerate(model_table.load_table().supported):
        progress(entry.name)
        entries.append(_write_model(out / entry.name.lower(), entry, index, trained))
    table = model_table.ModelTable(model_table.SCHEMA_VERSION, "vela sample --family: drawn weights", tuple(entries))
    durable.write_file(out / model_table.TABLE_FILE, model_table.encode_table(table))
    return table


def _write_model(folder: Path, entry: model_table.ModelEntry, index: int, trained: Tokenizer) -> model_table.ModelEntry:
    """Write one stand-in and give its line of the table."""
    folder.mkdir()
    model = CLASSES[entry.architecture](_config(entry)).eval()
    drawn = draw_weights({name: tuple(weight.shape) for name, weight in model.named_parameters()}, index)
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in drawn.items()}, strict=False)
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    _write_tokenizer(folder, entry.name, trained)
    _write_task_files(folder, entry, index)
    return _pin(folder, entry, sum(weight.size for weight in drawn.values()))


def draw_weights(shapes: Mapping[str, tuple[int, ...]], sibling: int) -> Weights:
    """Draw a model's weights by name; the encoder's are the family's, moved a little.

    Args:
        shapes: Of every parameter; encoders of classifiers have `model.` before their names.
        sibling: Which model it is; equal numbers give equal weights.
    """
    drawn = {}
    for name, shape in shapes.items():
        inner = name.removeprefix("model.")
        is_head = inner.startswith(("head.", "classifier."))
        own = _draw(inner, shape, sibling + 1)
        drawn[name] = own if is_head else _mix(_draw(inner, shape, 0), own)
    return drawn


def _mix(shared: NDArray[np.float32], own: NDArray[np.float32]) -> NDArray[np.float32]:
    """Move a shared weight by a share of another of the same spread."""
    moved: NDArray[np.float32] = (shared + SIBLING_SHARE * (own - own.mean())).astype(np.float32)
    return moved


def _draw(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng([ENCODER_SEED, seed, *name.encode()])
    values = rng.standard_normal(shape)
    if "norm" in name and name.endswith("weight"):
        return (1 + NORM_SPREAD * values).astype(np.float32)
    scale = 1.0 if "embeddings" in name or len(shape) < 2 else GAIN / math.sqrt(shape[-1])
    return (scale * values).astype(np.float32)


def _config(entry: model_table.ModelEntry) -> ModernBertConfig:
    labels = forms.LABELS.get(entry.name, ())
    named = {"id2label": dict(enumerate(labels)), "label2id": {label: index for index, label in enumerate(labels)}}
    multiple = {"problem_type": "multi_label_classification"} if entry.kind == "scores" else {}
    rope = {"rope_type": "default", "rope_theta": THETA}
    return ModernBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=forms.LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INTERMEDIATE_SIZE,
        local_attention=LOCAL_ATTENTION,
        max_position_embeddings=tokenizers.MAX_LENGTH,
        layer_types=["sliding_attention" if layer % 3 else "full_attention" for layer in range(forms.LAYERS)],
        rope_parameters={"full_attention": dict(rope), "sliding_attention": dict(rope)},
        classifier_pooling="mean",
        pad_token_id=0,
        eos_token_id=1,
        cls_token_id=1,
        sep_token_id=1,
        bos_token_id=2,
        **(named if labels else {}),
        **multiple,
    )


def _write_tokenizer(folder: Path, name: str, trained: Tokenizer) -> None:
    own = Tokenizer.from_str(trained.to_str())
    if name in forms.TRUNCATED_TO:
        own.enable_truncation(forms.TRUNCATED_TO[name])
    if name in forms.PADDED_TO:
        own.enable_padding(length=forms.PADDED_TO[name], pad_id=0, pad_token=tokenizers.PAD)
    tokenizers.write_tokenizer(own, folder)


def _write_task_files(folder: Path, entry: model_table.ModelEntry, index: int) -> None:
    """Write what decides the task beside config.json: just the files that the real model has."""
    point = forms.operating_point(entry.name)
    if point is not None:
        tokenizers.write_json(folder / task.OPERATING_POINT_FILE, point)
    if entry.kind == "embedding":
        (folder / task.POOLING_FILE).parent.mkdir()
        pooling = {"word_embedding_dimension": HIDDEN_SIZE, "pooling_mode_mean_tokens": True}
        tokenizers.write_json(folder / task.POOLING_FILE, pooling)
        tokenizers.write_json(folder / "modules.json", _modules())
    if entry.kind == "rerank":
        depths = {"exit_layers": list(forms.EXITS), "dimensions": list(forms.DIMENSIONS)}
        tokenizers.write_json(folder / task.MATRYOSHKA_FILE, depths)
        shapes = scorers.scorer_shapes(heads.RerankDecoder(forms.EXITS, forms.DIMENSIONS))
        drawn = {name: _draw(name, shape, index + 1) for name, shape in shapes.items()}
        save_file(drawn, folder / task.RERANK_HEADS_FILE, metadata={"format": "pt"})


def _modules() -> list[dict[str, object]]:
    parts = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    return [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(parts)
    ]


def _pin(folder: Path, entry: model_table.ModelEntry, parameters: int) -> model_table.ModelEntry:
    """Give the table's line of a stand-in: the real one's, with the digests of what was written."""
    files = {name: digests.sha256_of_file(folder / name) for name in entry.files}
    identity = digests.digest_of_listing(files)
    return msgspec.structs.replace(
        entry,
        repository=f"vela-standins/{entry.repository.partition('/')[2].replace('307M', 'Standin')}",
        revision=identity[:REVISION_DIGITS],
        model_sha256=identity,
        parameters=parameters,
        exits=forms.EXITS if entry.exits else (),
        dimensions=forms.DIMENSIONS if entry.dimensions else (),
        files=files,
    )
