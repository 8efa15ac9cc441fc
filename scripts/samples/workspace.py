"""What every training shares: folders, tokenizer, device, the pretrained encoder, and how checkpoints are written."""

import json
from dataclasses import dataclass
from pathlib import Path

import architecture
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import ModernBertConfig

from vela.export.standins.tokenizer import write_json, write_tokenizer


@dataclass(frozen=True, slots=True)
class Workspace:
    """The surroundings of one training run."""

    data: Path
    out: Path
    tokenizer: Tokenizer
    device: str
    # Share of the planned steps to run; 1 except for trials.
    effort: float = 1.0

    @classmethod
    def from_folders(cls, data: Path, out: Path, effort: float) -> "Workspace":
        """Open a workspace whose tokenizer exists."""
        tokenizer = Tokenizer.from_file(str(out / "base" / "tokenizer.json"))
        return cls(data, out, tokenizer, "cuda" if torch.cuda.is_available() else "cpu", effort)

    def steps(self, planned: int) -> int:
        """Scale a planned number of steps."""
        return max(2, int(planned * self.effort))

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Tokenise texts with their frame."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]

    def load_encoder(self, model: torch.nn.Module) -> None:
        """Start a model from the pretrained encoder; what the encoder lacks stays as it was made."""
        state = load_file(self.out / "base" / "model.safetensors")
        inner = getattr(model, "model", model)
        inner.load_state_dict({key.removeprefix("model."): v for key, v in state.items() if key.startswith("model.")})
        if hasattr(model, "head"):
            head = {key.removeprefix("head."): v for key, v in state.items() if key.startswith("head.")}
            model.head.load_state_dict(head)

    def write_checkpoint(
        self, name: str, model: torch.nn.Module, config: ModernBertConfig, *, legacy: bool = False
    ) -> Path:
        """Write config, weights and tokenizer of one sample and return its folder."""
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        content = architecture.config_json(config, type(model).__name__, legacy=legacy)
        write_json(folder / "config.json", content)
        state = {key: value.detach().float().cpu().clone() for key, value in model.state_dict().items()}
        # The language head of the base encoder shares the embeddings.
        state.pop("decoder.weight", None)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        write_tokenizer(self.tokenizer, folder)
        return folder


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object."""
    content: dict[str, object] = json.loads(path.read_text("utf-8"))
    return content
