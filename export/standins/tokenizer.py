"""The one tokenizer of samples and stand-ins, as the family's (Gemma-2 style): BPE over "▁" with byte fallback.

Merges are learned inside words only and never over digits or punctuation. The shipped tokenizer has no
pre-tokenizer that matters: it merges over the whole text, which gives the same pieces, since no merge crosses a word.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

PAD, EOS, BOS, UNK, MASK = "<pad>", "<eos>", "<bos>", "<unk>", "<mask>"
# The order is the ids 0 to 4.
SPECIAL_TOKENS = (PAD, EOS, BOS, UNK, MASK)
SPACE = "▁"
MAX_LENGTH = 32768
# Characters rarer than the 260 most frequent ones are spelled in bytes.
_ALPHABET_SIZE = 260


def learn_pieces(texts: Iterable[str], piece_count: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Learn the pieces and merges of the vocabulary, most frequent first."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", SPACE)
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n"), "isolated"),
            pre_tokenizers.Split(SPACE, "merged_with_next"),
            pre_tokenizers.Split(Regex(r"\d"), "isolated"),
            pre_tokenizers.Split(Regex(rf"[^\w\s{SPACE}]|_"), "isolated"),
        ]
    )
    trainer = trainers.BpeTrainer(vocab_size=piece_count, limit_alphabet=_ALPHABET_SIZE, show_progress=False)
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    split = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    return pieces, [(left, right) for left, right in split]


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train the tokenizer on texts and lay it out like the family's."""
    byte_pieces = [f"<0x{value:02X}>" for value in range(256)]
    fixed = [*SPECIAL_TOKENS, *byte_pieces]
    pieces, merges = learn_pieces(texts, vocab_size - len(fixed))
    vocab = {piece: index for index, piece in enumerate([*fixed, *pieces])}
    # The family also splits at " " here; the normaliser leaves none, so the split changes nothing.
    layout = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(index, token) for index, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": _framing(),
        "decoder": json.loads(_decoder_state()),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": UNK,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(merge) for merge in merges],
        },
    }
    return Tokenizer.from_str(json.dumps(layout))


def _added_token(index: int, token: str) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": token, **flags, "special": True}


def _framing() -> dict[str, object]:
    """Return the frames `<bos> a <eos>` and `<bos> a <eos> b <eos>`."""

    def special(token: str) -> dict[str, object]:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    def sequence(name: str) -> dict[str, object]:
        return {"Sequence": {"id": name, "type_id": 0}}

    ids = {token: SPECIAL_TOKENS.index(token) for token in (BOS, EOS)}
    return {
        "type": "TemplateProcessing",
        "single": [special(BOS), sequence("A"), special(EOS)],
        "pair": [special(BOS), sequence("A"), special(EOS), sequence("B"), special(EOS)],
        "special_tokens": {t: {"id": t, "ids": [index], "tokens": [t]} for t, index in ids.items()},
    }


def _decoder_state() -> bytes:
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts).__getstate__()


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, compact to keep it small, and the two files that name its special tokens."""
    state = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
    roles = {"bos_token": BOS, "cls_token": EOS, "eos_token": EOS, "mask_token": MASK, "pad_token": PAD}
    roles |= {"sep_token": EOS, "unk_token": UNK}
    config = {
        "added_tokens_decoder": {str(i): _decoder_entry(token) for i, token in enumerate(SPECIAL_TOKENS)},
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": MAX_LENGTH,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **roles,
    }
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", dict(sorted(roles.items())))


def _decoder_entry(token: str) -> dict[str, object]:
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": token, **flags, "special": True}


def write_json(path: Path, value: object) -> None:
    """Write readable JSON that ends with a line break."""
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", "utf-8")
