"""Forms: the parts of a model that are traced, as PyTorch modules with the outputs that Vela publishes.

An encoder and a head are traced apart and joined as graphs (passes/join_head.py), because all models of a family
share an encoder: twelve Vela models cost one encoder trace and a handful of small head traces. The encoder is
Transformers' own; a head is Transformers' own layers with the pooling between them, or a reranker's scorers. The
gate's reference shares none of this: it is a fresh model of Transformers' whole class (export/reference.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import nn
from transformers import (
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from vela.graphs import heads, scorers

HIDDEN = "hidden"  # input of a traced head: (B, T, H) float32


class Encoder(nn.Module):
    """The encoder with every exit: hidden states (B, T, H) after 1 to L layers.

    Exits before the last give the residual stream as it is; the last one gives it after the final norm.
    Source: reference/vela-family.md §1.3, representation contract 1; Transformers' own `hidden_states`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the encoder on (B, T) int64 ids and mask."""
        states = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True).hidden_states
        return tuple(states[1:])


class BertEncoder(nn.Module):
    """A BERT with hidden states as `Encoder` gives them; every token is of type 0, and positions count from 0."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the encoder on (B, T) int64 ids and mask."""
        states = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=torch.zeros_like(input_ids),
            position_ids=torch.arange(input_ids.shape[1], device=input_ids.device)[None],
            output_hidden_states=True,
        ).hidden_states
        return tuple(states[1:])


class BertLabelHead(nn.Module):
    """BERT's classification head: `logits`, (B, C) after its pooler, or (B, T, C) without one."""

    def __init__(self, pooler: nn.Module | None, classifier: nn.Module) -> None:
        super().__init__()
        self.pooler = pooler
        self.classifier = classifier

    def forward(self, hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Classify (B, T, H) float32 hidden states; the pooler takes the first token's."""
        logits: torch.Tensor = self.classifier(hidden if self.pooler is None else self.pooler(hidden))
        return logits


class LabelHead(nn.Module):
    """Classification head: `logits`, (B, C) after cls or mean pooling, or (B, T, C) without pooling."""

    def __init__(self, head: nn.Module, classifier: nn.Module, pooling: str | None) -> None:
        super().__init__()
        self.head = head
        self.classifier = classifier
        self.pooling = pooling

    def forward(self, hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Classify (B, T, H) float32 hidden states under a (B, T) int64 mask."""
        if self.pooling == "cls":
            hidden = hidden[:, 0]
        elif self.pooling == "mean":
            hidden = mean_over_mask(hidden, attention_mask)
        logits: torch.Tensor = self.classifier(self.head(hidden))
        return logits


class MeanHead(nn.Module):
    """Embedding head: the mean over the mask, (B, H), not normalised."""

    def forward(self, hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Pool (B, T, H) float32 hidden states under a (B, T) int64 mask."""
        return mean_over_mask(hidden, attention_mask)


class ScorerHead(nn.Module):
    """Pair scorers of one exit: for each dimension a logit, (B,), from the first token's hidden state.

    Parameters are named as in the heads file (graphs/scorers.py) for a layer 0 that stands for any exit, and
    `final_norm` as in the encoder.
    """

    def __init__(self, final_norm: nn.Module, dimensions: tuple[int, ...]) -> None:
        super().__init__()
        self.final_norm = final_norm
        self.heads = nn.ModuleDict({scorers.scorer_name(0, size): _scorer(size) for size in dimensions})
        self.dimensions = dimensions

    def forward(self, hidden: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Score (B, T, H) float32 hidden states; the mask is not needed, because a first token is never a pad."""
        first = self.final_norm(hidden[:, 0])
        logits = []
        for size, scorer in zip(self.dimensions, self.heads.values(), strict=True):
            inner = nn.functional.gelu(scorer["dense"](first[:, :size]))
            logits.append(scorer["out"](inner).squeeze(-1))
        return tuple(logits)


def _scorer(dimension: int) -> nn.ModuleDict:
    return nn.ModuleDict({"dense": nn.Linear(dimension, dimension // 2), "out": nn.Linear(dimension // 2, 1)})


def mean_over_mask(hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Average (B, T, H) hidden states over the tokens that a (B, T) mask keeps, special tokens included.

    A product with the mask, and no sum over an axis: ONNX Runtime adds up a lone row in another order than a row in
    company, so that the last bits of an answer would depend on who else asks. Its products of a batch are independent.
    """
    weights = attention_mask.unsqueeze(1).to(hidden.dtype)
    return torch.matmul(weights, hidden).squeeze(1) / weights.sum(dim=2)


@dataclass(frozen=True, slots=True)
class Family:
    """Transformers' classes of one family, and how its parts become forms.

    Attributes:
        base: The encoder's class.
        sequence: The sequence classifier's.
        token: The token classifier's.
        make_encoder: Makes the traced encoder.
        make_label_head: Makes the traced head of a classifier.
    """

    base: type[PreTrainedModel]
    sequence: type[PreTrainedModel]
    token: type[PreTrainedModel]
    make_encoder: Callable[[PreTrainedConfig], nn.Module]
    make_label_head: Callable[[PreTrainedModel], nn.Module]


def _modernbert_label_head(model: PreTrainedModel) -> nn.Module:
    is_sequence = isinstance(model, ModernBertForSequenceClassification)
    return LabelHead(model.head, model.classifier, model.config.classifier_pooling if is_sequence else None)


def _bert_label_head(model: PreTrainedModel) -> nn.Module:
    return BertLabelHead(model.bert.pooler, model.classifier)


FAMILIES = {
    "modernbert": Family(
        ModernBertModel,
        ModernBertForSequenceClassification,
        ModernBertForTokenClassification,
        lambda config: Encoder(ModernBertModel(config)),
        _modernbert_label_head,
    ),
    "bert": Family(
        BertModel,
        BertForSequenceClassification,
        BertForTokenClassification,
        lambda config: BertEncoder(BertModel(config, add_pooling_layer=False)),
        _bert_label_head,
    ),
}


def model_class(head: heads.Head, model_type: str) -> type[PreTrainedModel]:
    """Give Transformers' class for a head; a reranker's scorers are no part of one."""
    family = FAMILIES[model_type]
    match head.decoder:
        case heads.SequenceDecoder() | heads.ScoresDecoder():
            return family.sequence
        case heads.BioDecoder() | heads.GroundedDecoder():
            return family.token
        case heads.EmbeddingDecoder() | heads.RerankDecoder():
            return family.base
        case _:
            assert_never(head.decoder)


def build_encoder(config: PreTrainedConfig) -> nn.Module:
    """Build an encoder whose tensors have shapes and no storage: tracing needs no weights, so it needs no memory."""
    with torch.device("meta"):
        return FAMILIES[config.model_type].make_encoder(config).eval()


def build_head(config: PreTrainedConfig, head: heads.Head, *, is_early: bool) -> tuple[nn.Module, list[str]]:
    """Build a head without storage, and name its outputs.

    Args:
        config: It may have one layer, since the encoder is not used.
        head: What the checkpoint describes.
        is_early: Whether layers are left out before the head; matters to rerankers only.
    """
    kind = model_class(head, config.model_type)
    if isinstance(head.decoder, heads.EmbeddingDecoder):
        return MeanHead().eval(), ["output"]
    with torch.device("meta"):
        model = kind(config)
        if isinstance(head.decoder, heads.RerankDecoder):
            # The encoder's last state is after the final norm; the states before it are not.
            norm = model.final_norm if is_early else nn.Identity()
            form = ScorerHead(norm, head.decoder.dimensions).eval()
            return form, [scorers.scorer_name(0, size) for size in head.decoder.dimensions]
    return FAMILIES[config.model_type].make_label_head(model).eval(), ["output"]
