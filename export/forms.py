"""Forms: the model of a checkpoint with the outputs that Vela publishes, as a PyTorch module.

A form wraps Transformers' own model and names its outputs. The same forms are traced (on weightless tensors, with
Vela's attention) and, built anew from the checkpoint with Transformers' SDPA, are the gate's reference; the two
never share a module.
"""

from collections.abc import Mapping

import torch
from torch import nn
from transformers import (
    ModernBertConfig,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    PreTrainedModel,
)

from vela.graphs import contract, errors, heads

Outputs = Mapping[str, torch.Tensor]


class LabelForm(nn.Module):
    """Sequence and token classifiers: `logits`, (B, C) or (B, T, C)."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run the classifier on (B, T) int64 ids and mask."""
        return {contract.LOGITS: self.model(input_ids=input_ids, attention_mask=attention_mask).logits}


class EmbeddingForm(nn.Module):
    """Embedders: `embedding_l<layer>`, (B, H), the mean over the mask at each exit depth, not normalised.

    Exits before the last take the residual stream as it is; the last one takes it after the final norm.
    Source: reference/vela-family.md §1.3, representation contract 1.
    """

    def __init__(self, model: PreTrainedModel, exits: tuple[int, ...]) -> None:
        super().__init__()
        self.model = model
        self.exits = exits

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run the encoder on (B, T) int64 ids and mask."""
        states = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True).hidden_states
        weights = attention_mask.unsqueeze(-1).to(torch.float32)
        tokens = weights.sum(dim=1)
        return {contract.embedding_output(layer): (states[layer] * weights).sum(dim=1) / tokens for layer in self.exits}


def model_class(head: heads.Head) -> type[PreTrainedModel]:
    """Give Transformers' class for a head.

    Raises:
        ExportError: the head's form is not exported yet.
    """
    match head.decoder:
        case heads.SequenceDecoder() | heads.ScoresDecoder():
            return ModernBertForSequenceClassification
        case heads.BioDecoder():
            return ModernBertForTokenClassification
        case heads.EmbeddingDecoder():
            return ModernBertModel
        case _:
            raise errors.ExportError(
                f"a head of kind {head.kind} for {head.inputs} inputs",
                expected="a sequence, multi-label, BIO token or embedding head",
                where="checkpoint",
                fix="This form is not exported yet; `vela models` says which are.",
            )


def wrap(model: PreTrainedModel, head: heads.Head) -> nn.Module:
    """Give the form of a head around a built model, in inference mode."""
    if isinstance(head.decoder, heads.EmbeddingDecoder):
        return EmbeddingForm(model, head.decoder.exits).eval()
    return LabelForm(model).eval()


def build_weightless(config: ModernBertConfig, head: heads.Head) -> nn.Module:
    """Build a form whose tensors have shapes and no storage: tracing needs no weights, so it needs no memory."""
    with torch.device("meta"):
        return wrap(model_class(head)(config), head)
