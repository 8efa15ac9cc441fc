"""Hidden states at several depths of one encoder, for the samples with early exits."""

import torch
from transformers import ModernBertModel

EXIT_LAYERS = (2, 4, 6)
DIMENSIONS = (96, 64, 32)


def hidden_at_exits(
    encoder: ModernBertModel, input_ids: torch.Tensor, attention_mask: torch.Tensor
) -> dict[int, torch.Tensor]:
    """Run the encoder once and return the raw hidden states (B, T, H) after each exit layer, before any final norm."""
    states: dict[int, torch.Tensor] = {}

    def keep(layer: int) -> torch.utils.hooks.RemovableHandle:
        def hook(_module: torch.nn.Module, _inputs: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            states[layer] = output[0] if isinstance(output, tuple) else output

        return encoder.layers[layer - 1].register_forward_hook(hook)

    handles = [keep(layer) for layer in EXIT_LAYERS]
    try:
        encoder(input_ids=input_ids, attention_mask=attention_mask)
    finally:
        for handle in handles:
            handle.remove()
    return states


def mean_embeddings(
    encoder: ModernBertModel, input_ids: torch.Tensor, attention_mask: torch.Tensor
) -> dict[tuple[int, int], torch.Tensor]:
    """Embed texts at every exit and dimension: mean over the mask, first D values, then length one.

    Intermediate exits are raw; the last one is after the final norm.
    """
    states = hidden_at_exits(encoder, input_ids, attention_mask)
    states[EXIT_LAYERS[-1]] = encoder.final_norm(states[EXIT_LAYERS[-1]])
    mask = attention_mask[..., None].float()
    means = {layer: (hidden.float() * mask).sum(1) / mask.sum(1) for layer, hidden in states.items()}
    normalize = torch.nn.functional.normalize
    return {(layer, d): normalize(mean[:, :d], dim=-1) for layer, mean in means.items() for d in DIMENSIONS}


class PairScorers(torch.nn.Module):
    """One scorer of the first token for each exit and dimension: Linear(D, D/2), exact GELU, Linear(D/2, 1)."""

    def __init__(self) -> None:
        """Create the scorers under the names they are stored by."""
        super().__init__()
        self.heads = torch.nn.ModuleDict(
            {
                f"layer_{layer}_dim_{d}": torch.nn.ModuleDict(
                    {"dense": torch.nn.Linear(d, d // 2), "out": torch.nn.Linear(d // 2, 1)}
                )
                for layer in EXIT_LAYERS
                for d in DIMENSIONS
            }
        )

    def forward(
        self, encoder: ModernBertModel, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[tuple[int, int], torch.Tensor]:
        """Return the logit (B,) of every exit and dimension; the final norm is applied at each exit."""
        states = hidden_at_exits(encoder, input_ids, attention_mask)
        logits = {}
        for layer, hidden in states.items():
            first = encoder.final_norm(hidden[:, 0])
            for d in DIMENSIONS:
                head = self.heads[f"layer_{layer}_dim_{d}"]
                inner = torch.nn.functional.gelu(head["dense"](first[:, :d]))
                logits[layer, d] = head["out"](inner).squeeze(-1)
        return logits
