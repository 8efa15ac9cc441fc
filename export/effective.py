"""The effective values in a built model, compared with the independent reading of config.json.

A config key matters only through what the built model does with it, so this looks at modules, not at the config
object: RoPE tables and scalings, layer types, windows, epsilons, activations, pooling, label count.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn
from transformers import BertModel, ModernBertConfig, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.models.modernbert.modeling_modernbert import ModernBertModel, ModernBertRotaryEmbedding

from vela.graphs import errors
from vela.verify import architecture
from vela.verify.architecture import rope
from vela.verify.architecture.bert import Bert
from vela.verify.architecture.modernbert import ModernBert


def computed_tables(config: PreTrainedConfig) -> dict[str, NDArray[np.float32]]:
    """Compute RoPE tables, if any, by Transformers' own code, named as the traced graph names them."""
    if not isinstance(config, ModernBertConfig):
        return {}
    module = ModernBertRotaryEmbedding(config)
    return {
        f"rotary_emb.{name}": buffer.numpy().astype(np.float32)
        for name, buffer in module.named_buffers()
        if not name.endswith("original_inv_freq")
    }


def check_effective(model: nn.Module, expected: architecture.Architecture) -> None:
    """Compare a built model with the independent reading.

    Raises:
        CheckpointError: naming each value that differs, as Transformers built it and as the file says.
    """
    match expected:
        case ModernBert():
            encoder = model if isinstance(model, ModernBertModel) else model.model
            found, wanted = _encoder_values(encoder) | _head_values(model, expected), _expected_values(expected)
            tables = _differing_ropes(encoder, expected)
        case Bert():
            found, wanted, tables = _bert_values(model, expected), _expected_bert_values(expected), []
        case _:
            raise ValueError(f"no effective values are known of {type(expected).__name__}")
    differing = [f"{key} {found.get(key)!r} for {value!r}" for key, value in wanted.items() if found.get(key) != value]
    differing += tables
    if differing:
        raise errors.CheckpointError(
            f"a model built with {'; '.join(differing)}",
            expected="the values that config.json states",
            where="config.json as Transformers reads it",
            fix="Use the Transformers version that the checkpoint was saved with, or a newer one.",
        )


def _encoder_values(encoder: Any) -> dict[str, object]:
    layers = list(encoder.layers)
    norms = [module for module in encoder.modules() if isinstance(module, nn.LayerNorm)]
    return {
        "vocabulary_size": encoder.embeddings.tok_embeddings.num_embeddings,
        "hidden_size": encoder.embeddings.tok_embeddings.embedding_dim,
        "intermediate_size": layers[0].mlp.Wo.in_features,
        "attention_heads": layers[0].attn.Wqkv.out_features // (3 * layers[0].attn.head_dim),
        "layer_types": tuple(layer.attention_type for layer in layers),
        "half_windows": _half_windows(layers),
        "norm_eps": tuple(sorted({norm.eps for norm in norms})),
        "activation": tuple(sorted({type(layer.mlp.act).__name__ for layer in layers})),
        "biases": (norms[0].bias is not None, layers[0].attn.Wqkv.bias is not None, layers[0].mlp.Wi.bias is not None),
    }


def _half_windows(layers: list[Any]) -> tuple[int | None, ...]:
    """Half-window per layer: Transformers keeps it inclusive, one larger; None on full layers."""
    windows = (layer.attn.sliding_window for layer in layers)
    return tuple(None if window is None else window - 1 for window in windows)


def _head_values(model: Any, expected: ModernBert) -> dict[str, object]:
    if not expected.label_count:
        return {}
    return {
        "label_count": model.classifier.out_features,
        "classifier_activation": type(model.head.act).__name__,
        "classifier_bias": model.head.dense.bias is not None,
        "pooling": model.config.classifier_pooling if expected.pooling else None,
    }


def _expected_values(expected: ModernBert) -> dict[str, object]:
    values: dict[str, object] = {
        "vocabulary_size": expected.vocabulary_size,
        "hidden_size": expected.hidden_size,
        "intermediate_size": expected.intermediate_size,
        "attention_heads": expected.attention_heads,
        "layer_types": expected.layer_types,
        "half_windows": tuple(
            expected.half_window if kind == "sliding_attention" else None for kind in expected.layer_types
        ),
        "norm_eps": (expected.norm_eps,),
        "activation": (type(ACT2FN[expected.activation]).__name__,),
        "biases": expected.biases,
    }
    if expected.label_count:
        values |= {
            "label_count": expected.label_count,
            "classifier_activation": type(ACT2FN[expected.classifier_activation]).__name__,
            "classifier_bias": expected.classifier_bias,
            "pooling": expected.pooling,
        }
    return values


def _differing_ropes(encoder: Any, expected: ModernBert) -> list[str]:
    differing = []
    for layer_type, wanted in expected.rotations(expected.layers).items():
        found = getattr(encoder.rotary_emb, f"{layer_type}_inv_freq").numpy()
        scaling = getattr(encoder.rotary_emb, f"{layer_type}_attention_scaling")
        if not rope.has_frequencies(found, wanted, expected.head_width):
            differing.append(f"{layer_type} RoPE of {rope.describe_frequencies(found)} for {wanted}")
        if not rope.has_scaling(scaling, wanted):
            differing.append(f"{layer_type} RoPE attention scaling {scaling:.6g} for {wanted.attention_scaling:.6g}")
    return differing


def _bert_values(model: Any, expected: Bert) -> dict[str, object]:
    encoder = model if isinstance(model, BertModel) else model.bert
    layers, embeddings = list(encoder.encoder.layer), encoder.embeddings
    attention = layers[0].attention.self
    return {
        "vocabulary_size": embeddings.word_embeddings.num_embeddings,
        "hidden_size": embeddings.word_embeddings.embedding_dim,
        "intermediate_size": layers[0].intermediate.dense.out_features,
        "attention_heads": attention.num_attention_heads,
        "attention_scaling": attention.scaling,
        "layers": len(layers),
        "positions": embeddings.position_embeddings.num_embeddings,
        "token_types": embeddings.token_type_embeddings.num_embeddings,
        "norm_eps": tuple(sorted({norm.eps for norm in encoder.modules() if isinstance(norm, nn.LayerNorm)})),
        "activation": tuple(sorted({type(layer.intermediate.intermediate_act_fn).__name__ for layer in layers})),
        "label_count": model.classifier.out_features if expected.label_count else 0,
    }


def _expected_bert_values(expected: Bert) -> dict[str, object]:
    width = expected.hidden_size // expected.attention_heads
    computed = {
        "attention_scaling": width**-0.5,
        "norm_eps": (expected.norm_eps,),
        "activation": (type(ACT2FN[expected.activation]).__name__,),
    }
    return dataclasses.asdict(expected) | computed
