"""Make a checkpoint of the 307M shape with seeded random weights and a 256,000-entry tokenizer.

Benchmarks and `-m large` tests need the family's real size; its weights are nobody's to ship. The shape is mmBERT's:
22 layers, hidden 768, 12 heads, intermediate 1,152, vocabulary 256,000, half-window 64, both thetas 160,000.

    python scripts/bench/large_checkpoint.py DIR
"""

import json
import sys
from itertools import product
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import ModernBertConfig, ModernBertForSequenceClassification

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
VOCABULARY = 256_000
LABELS = ("safe", "unsafe")


def make_checkpoint(folder: Path, seed: int = 0) -> None:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    labels = dict(enumerate(LABELS))
    rope = {"rope_theta": 160_000.0, "rope_type": "default"}
    config = ModernBertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=32_768,
        pad_token_id=0,
        eos_token_id=1,
        cls_token_id=1,
        sep_token_id=1,
        bos_token_id=2,
        rope_parameters={"full_attention": dict(rope), "sliding_attention": dict(rope)},
        classifier_pooling="mean",
        id2label=labels,
        label2id={label: index for index, label in labels.items()},
        problem_type="single_label_classification",
    )
    model = ModernBertForSequenceClassification(config)
    model.save_pretrained(folder, max_shard_size="10GB")
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 32_768}))


def make_tokenizer() -> Tokenizer:
    """Build a byte-fallback BPE whose vocabulary is two-, three- and four-letter pieces, framed as the family's is."""
    letters = "etaoinshrdlucmfwypvbgkjqxz▁'.,;-"
    vocabulary = {token: index for index, token in enumerate(SPECIAL)}
    vocabulary |= {f"<0x{byte:02X}>": len(SPECIAL) + byte for byte in range(256)}
    merges: list[tuple[str, str]] = []
    for letter in letters:
        vocabulary.setdefault(letter, len(vocabulary))
    for length in (2, 3, 4):
        for piece in map("".join, product(letters[:28], repeat=length)):
            if len(vocabulary) == VOCABULARY:
                break
            if piece[:-1] in vocabulary and piece not in vocabulary:
                vocabulary[piece] = len(vocabulary)
                merges.append((piece[:-1], piece[-1]))
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Replace(" ", "▁")
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.add_special_tokens(list(SPECIAL))
    inner.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> $B <eos>",
        special_tokens=[("<bos>", 2), ("<eos>", 1)],
    )
    return inner


if __name__ == "__main__":
    make_checkpoint(Path(sys.argv[1]))
