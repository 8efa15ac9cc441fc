"""Export one checkpoint twice with optimum-onnx 0.1.0 and Transformers 4.57, as its users do, once wrongly.

    python tests/verify/optimum/make.py OUT --optimum-python PATH

Transformers 5 writes ModernBERT's rotary positions as `rope_parameters`. 4.57 reads such a config without a warning and
takes its own defaults instead, so local layers get a theta of 10,000 where the checkpoint has 160,000 (both thetas of
mmBERT): `wrong.onnx`. With the keys that 4.57 knows, the same weights become `right.onnx`. optimum checks either graph
against the model that 4.57 built, and says nothing.

PATH is an interpreter that has both: `pip install torch==2.13.0`, then `pip install optimum-onnx==0.1.0
'transformers<4.58'`.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, processors
from transformers import ModernBertConfig, ModernBertForSequenceClassification, PreTrainedTokenizerFast

THETA = 160_000.0
SPECIALS = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
POSITIONS = 512


def write_tokenizer(folder: Path) -> int:
    """Write a tokenizer of bytes, which every text has an answer in, and give its size."""
    words = [*SPECIALS.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = tokenizers.Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    marks = [(word, inner.token_to_id(word)) for word in (SPECIALS["cls_token"], SPECIALS["sep_token"])]
    inner.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=POSITIONS, **SPECIALS).save_pretrained(folder)
    return len(words)


def write_checkpoint(folder: Path) -> None:
    """Save a random mmBERT-style classifier with Transformers 5; weights are wide, so that layers matter."""
    words = write_tokenizer(folder)
    torch.manual_seed(9)
    rope = {"rope_type": "default", "rope_theta": THETA}
    config = ModernBertConfig(
        vocab_size=words,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=POSITIONS,
        local_attention=128,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        rope_parameters={"full_attention": dict(rope), "sliding_attention": dict(rope)},
        num_labels=3,
        initializer_range=0.3,
        initializer_cutoff_factor=3.0,
        pad_token_id=0,
        cls_token_id=1,
        bos_token_id=1,
        sep_token_id=2,
        eos_token_id=2,
    )
    ModernBertForSequenceClassification(config).save_pretrained(folder)


def respell(folder: Path) -> None:
    """Write the rotary positions and layer types as Transformers 4 spells them, and nothing else."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name in ("rope_parameters", "layer_types"):
        del config[name]
    config |= {"global_rope_theta": THETA, "local_rope_theta": THETA, "global_attn_every_n_layers": 3}
    path.write_text(json.dumps(config, indent=2))


def export(python: Path, checkpoint: Path, out: Path) -> None:
    """Export with optimum's own command, in its own environment."""
    with tempfile.TemporaryDirectory() as work:
        command = [python.with_name("optimum-cli"), "export", "onnx", "--task", "text-classification"]
        subprocess.run([*command, "--model", checkpoint, work], check=True, capture_output=True, text=True)
        shutil.move(Path(work) / "model.onnx", out)


def main() -> None:
    """Write checkpoint and graphs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--optimum-python", type=Path, required=True)
    arguments = parser.parse_args()
    checkpoint = arguments.out / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    write_checkpoint(checkpoint)
    export(arguments.optimum_python, checkpoint, arguments.out / "wrong.onnx")
    with tempfile.TemporaryDirectory() as work:
        respelled = Path(shutil.copytree(checkpoint, Path(work) / "checkpoint"))
        respell(respelled)
        export(arguments.optimum_python, respelled, arguments.out / "right.onnx")


if __name__ == "__main__":
    main()
