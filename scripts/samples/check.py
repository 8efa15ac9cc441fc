"""Check written samples: sizes, loading, both layouts of config.json, framing, and how answers depend on the mask.

    python scripts/samples/check.py --checkpoints DIR

Needs torch and transformers 5. Ends with an error at the first thing that is not as promised.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import architecture
import torch
import transformers
from exits import PairScorers
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer, ModernBertConfig
from workspace import read_json

from vela.export.standins.tokenizer import write_json

MAX_BYTES = 3_500_000
MAX_BYTES_TOGETHER = 25_000_000
LEGACY = ("tiny-guard", "tiny-intent")
_TEXTS = ("Meine Nummer ist 030 1234567.", "日本語 🙂 ok", "a  b\n\tc é", " leading and trailing ", "")


class SampleIsWrong(Exception):
    """A sample does not keep a promise; the message says which."""


def require(condition: bool, message: str) -> None:
    """Raise when a promise is not kept."""
    if not condition:
        raise SampleIsWrong(message)


def load(folder: Path) -> torch.nn.Module:
    """Load a sample with the class that its config names."""
    architecture_name = str(read_json(folder / "config.json")["architectures"][0])  # type: ignore[index]
    return getattr(transformers, architecture_name).from_pretrained(folder).eval()  # type: ignore[no-any-return]


def check_sizes(folders: list[Path]) -> None:
    """Check the bytes of each folder and of all."""
    sizes = {f.name: sum(p.stat().st_size for p in f.rglob("*") if p.is_file()) for f in folders}
    require(max(sizes.values()) <= MAX_BYTES, f"too large: {sizes}")
    require(sum(sizes.values()) <= MAX_BYTES_TOGETHER, f"too large together: {sizes}")
    sys.stdout.write(f"bytes {sizes} together {sum(sizes.values())}\n")


def check_tokenizer(folder: Path) -> None:
    """Check framing, round trips, and that nothing is cut or padded."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    require(tokenizer.truncation is None and tokenizer.padding is None, f"{folder.name}: truncates or pads")
    require(tokenizer.encode("").ids == [2, 1], f"{folder.name}: frame is not <bos> <eos>")
    inner = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("one", "two")]
    require(tokenizer.encode("one", "two").ids == [2, *inner[0], 1, *inner[1], 1], f"{folder.name}: pair frame")
    for text in _TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        require(tokenizer.decode(ids) == text, f"{folder.name}: {text!r} does not come back")
    fast = AutoTokenizer.from_pretrained(folder)
    for text in _TEXTS:
        require(
            fast(text)["input_ids"] == tokenizer.encode(text).ids, f"{folder.name}: transformers tokenises otherwise"
        )
    require(fast.model_max_length == architecture.MAX_POSITIONS, f"{folder.name}: model_max_length")


def outputs(model: torch.nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Return logits, or hidden states where there are none."""
    with torch.no_grad():
        answer = model(input_ids=input_ids, attention_mask=attention_mask)
    return answer.logits if "logits" in answer else answer.last_hidden_state


def check_legacy_layout(folder: Path) -> None:
    """Check that the layout of Transformers 4 loads to the same angles, layers and answers as that of 5."""
    content = read_json(folder / "config.json")
    require("rope_parameters" not in content and "layer_types" not in content, f"{folder.name}: is not legacy")
    old = load(folder)
    rope = old.config.rope_parameters
    modern = architecture.sample_config(local_theta=rope["sliding_attention"]["rope_theta"])
    require(old.config.layer_types == modern.layer_types, f"{folder.name}: layer types differ")
    require(rope["full_attention"]["rope_theta"] == content["global_rope_theta"], f"{folder.name}: global theta")
    require(rope["sliding_attention"]["rope_theta"] == content["local_rope_theta"], f"{folder.name}: local theta")
    config = ModernBertConfig(
        **{**content, "layer_types": modern.layer_types, "rope_parameters": modern.rope_parameters}
    )
    with tempfile.TemporaryDirectory() as name:
        write_json(Path(name) / "config.json", {**config.to_dict(), "architectures": content["architectures"]})
        (Path(name) / "model.safetensors").symlink_to((folder / "model.safetensors").resolve())
        new = load(Path(name))
    for kind in ("full_attention", "sliding_attention"):
        pair = [getattr(_backbone(model).rotary_emb, f"{kind}_inv_freq") for model in (old, new)]
        require(torch.equal(*pair), f"{folder.name}: inv_freq of {kind} differs")
    ids = torch.randint(5, architecture.VOCAB_SIZE, (2, 200), generator=torch.Generator().manual_seed(0))
    require(torch.equal(outputs(old, ids, torch.ones_like(ids)), outputs(new, ids, torch.ones_like(ids))), "logits")


def _backbone(model: torch.nn.Module) -> torch.nn.Module:
    return getattr(model, "model", model)


def sensitivity(folder: Path) -> dict[str, float]:
    """Measure how answers move with the window, the rotary base, and a mask that is dropped over padding."""
    ids = torch.randint(5, architecture.VOCAB_SIZE, (2, 120), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    base = outputs(load(folder), ids, mask)
    moved = {}
    for field, value in (("window", architecture.LOCAL_ATTENTION // 2), ("theta", 500.0)):
        model = load(folder)
        config = model.config
        if field == "window":
            config.local_attention = value
        else:
            for kind in config.rope_parameters.values():
                kind["rope_theta"] = value
        other = type(model)(config).eval()
        other.load_state_dict(model.state_dict(), strict=False)
        moved[field] = float((outputs(other, ids, mask) - base).abs().max())
    model = load(folder)
    padded = torch.cat([ids, torch.zeros_like(ids)], dim=1)
    seen = torch.cat([mask, torch.zeros_like(mask)], dim=1)
    with_mask, without = outputs(model, padded, seen), outputs(model, padded, torch.ones_like(seen))
    if base.ndim == 3:
        with_mask, without = with_mask[:, : base.shape[1]], without[:, : base.shape[1]]
    moved["padding"] = float((with_mask - base).abs().max())
    moved["mask_dropped"] = float((without - base).abs().max())
    return moved


def main() -> int:
    """Check every sample."""
    parser = argparse.ArgumentParser(description="Check the sample checkpoints.")
    parser.add_argument("--checkpoints", type=Path, required=True)
    folders = sorted(path for path in parser.parse_args().checkpoints.glob("tiny-*") if path.is_dir())
    require(len(folders) == 7, f"found {len(folders)} samples")
    require(len({(f / "tokenizer.json").read_bytes() for f in folders}) == 1, "tokenizers differ")
    check_sizes(folders)
    for folder in folders:
        state = load_file(folder / "model.safetensors")
        require(all(value.dtype == torch.float32 for value in state.values()), f"{folder.name}: not FP32")
        check_tokenizer(folder)
        AutoModel.from_pretrained(folder)
        moved = sensitivity(folder)
        require(moved["padding"] < 1e-4, f"{folder.name}: padding moves answers by {moved['padding']}")
        require(min(moved["window"], moved["theta"], moved["mask_dropped"]) > 1e-2, f"{folder.name}: {moved}")
        sys.stdout.write(f"{folder.name} { ({key: round(value, 6) for key, value in moved.items()}) }\n")
        if folder.name in LEGACY:
            check_legacy_layout(folder)
    heads = next(folder for folder in folders if folder.name == "tiny-reranker") / "classification_heads.safetensors"
    PairScorers().load_state_dict(load_file(heads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
