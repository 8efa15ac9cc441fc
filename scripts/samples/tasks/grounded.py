"""tiny-grounded: which tokens of an answer its context does not support."""

import itertools
from pathlib import Path

import numpy as np
import torch
from architecture import sample_config
from corpora import read_both_intent_sets, read_passages
from data.grounded import GroundedExample, GroundedWriter
from fit import Schedule, fit
from packed import IGNORED, Batch, PackedExamples
from tokenizers import Encoding
from transformers import ModernBertForTokenClassification
from workspace import Workspace

from vela.export.standins.tokenizer import write_json

NAME = "tiny-grounded"
SEED = 5
LABELS = ["supported", "hallucinated"]
_STEPS = 7500
_FACTS, _PASSAGES = 70000, 35000
_MAX_TOKENS = 768
_SHORT_STEPS, _SHORT_CONTEXT = 3000, 200
_ROWS = 256


def passages(workspace: Workspace, split: str) -> list[str]:
    """Read the real texts that contexts are filled up with."""
    texts = [row.text for row in read_both_intent_sets(workspace.data, split)]
    return read_passages(workspace.data, split) * 2 + [text for text in texts if len(text) > 40]


def framed(example: GroundedExample) -> tuple[str, str]:
    """Return the pair of texts that the tokenizer frames."""
    return f"User request: {example.question}\n\n{example.context}", example.answer.text


def token_labels(encoding: Encoding, example: GroundedExample) -> list[int]:
    """Give each answer token its label; everything else is ignored."""
    result, text = [], example.answer.text
    for (start, end), sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True):
        if sequence != 1:
            result.append(IGNORED)
            continue
        # A token of white space alone belongs to the span it stands in.
        inner = min(end - 1, start + len(text[start:end]) - len(text[start:end].lstrip()))
        result.append(int(any(inner < span.end and end > span.start for span in example.answer.spans)))
    return result


def pack(workspace: Workspace, examples: list[GroundedExample]) -> PackedExamples:
    """Tokenise and label examples; longer ones than the training length are left out."""
    encodings = workspace.tokenizer.encode_batch([framed(example) for example in examples])
    kept = [(e, x) for e, x in zip(encodings, examples, strict=True) if len(e.ids) <= _MAX_TOKENS]
    targets = [token_labels(encoding, example) for encoding, example in kept]
    return PackedExamples([encoding.ids for encoding, _ in kept], workspace.device, targets)


def write_operating_point(folder: Path) -> None:
    """Write how answers are framed and decoded."""
    point = {
        "max_input_tokens": 8192,
        "token_threshold": 0.5,
        "threshold_comparison": "strictly_greater",
        "label2id": {label: index for index, label in enumerate(LABELS)},
        "input_pair": ["User request: {question}\n\n{context}", "answer"],
        "answer_offsets": "Unicode code points",
    }
    write_json(folder / "operating_point.json", point)


def train(workspace: Workspace) -> None:
    """Train and write the checkpoint."""
    torch.manual_seed(SEED)
    writer = GroundedWriter(SEED, passages(workspace, "train"), held_out=False)
    examples = [writer.fact_example() for _ in range(_FACTS)] + [writer.passage_example() for _ in range(_PASSAGES)]
    packed = pack(workspace, examples)
    config = sample_config(labels=LABELS)
    model = ModernBertForTokenClassification(config).to(workspace.device)
    workspace.load_encoder(model)

    def loss_of(current: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits = current(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.token_targets.flatten())

    rng = np.random.default_rng(SEED)
    short = pack(workspace, [example for example in examples if len(example.context) < _SHORT_CONTEXT])
    # Copying is learned on short contexts first; on long ones alone it does not emerge in this time.
    first = itertools.islice(short.epochs(rng, _ROWS), workspace.steps(_SHORT_STEPS))
    batches = itertools.chain(first, packed.epochs(rng, _ROWS))
    schedule = Schedule(workspace.steps(_STEPS), 2e-3)
    write_operating_point(workspace.write_checkpoint(NAME, fit(model, batches, loss_of, schedule, NAME), config))
