"""An independent reading of config.json: the effective values that decide the maths, derived without Transformers.

The same file read by one library on both sides of a comparison agrees with itself even when it is misread:
Transformers 4.57 reads a config that 5.x wrote with a local theta of 10,000 instead of 160,000, silently. So the
gate reads config.json a second time, here, and export compares the built model with it (export/effective.py).

Every key is known: *maths* keys are used below, *inert* keys cannot change an answer, and any other key is an error
that names it, because a key nobody reads is how a model ends up half-configured.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors, task

LayerType = Literal["full_attention", "sliding_attention"]

MATHS_KEYS = frozenset(
    "architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "hidden_activation max_position_embeddings norm_eps norm_bias attention_bias mlp_bias layer_types "
    "rope_parameters rope_scaling global_rope_theta local_rope_theta global_attn_every_n_layers local_attention "
    "classifier_pooling classifier_bias classifier_activation problem_type id2label label2id num_labels".split()
)
# Source: real mmBERT and ModernBERT configs carry these; none of them reaches the forward pass at inference.
INERT_KEYS = frozenset(
    "attention_dropout embedding_dropout mlp_dropout classifier_dropout initializer_range initializer_cutoff_factor "
    "bos_token_id eos_token_id cls_token_id sep_token_id pad_token_id mask_token_id unk_token_id dtype torch_dtype "
    "transformers_version deterministic_flash_attn reference_compile repad_logits_with_grad sparse_prediction "
    "sparse_pred_ignore_index tie_word_embeddings decoder_bias layer_norm_eps position_embedding_type "
    "gradient_checkpointing use_cache _name_or_path _attn_implementation_autoset unpad_inputs unpad_no_grad "
    "skip_first_prenorm use_fa2 compile_model loss_kwargs padding chunk_size_feed_forward is_encoder_decoder "
    "output_attentions output_hidden_states return_dict".split()
)
DEFAULT_THETAS: dict[LayerType, float] = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
THETA_KEYS: dict[LayerType, str] = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the forward pass depends on, with every default resolved.

    Attributes:
        vocabulary_size: Rows of the embedding table.
        hidden_size: H.
        intermediate_size: Width of the gated feed-forward layer.
        attention_heads: A; each is H / A wide.
        layer_types: One per layer.
        half_window: A sliding layer's query i sees keys j with |i - j| <= half_window.
        thetas: RoPE base per layer type.
        norm_eps: LayerNorm epsilon.
        activation: Of the feed-forward layers.
        classifier_activation: Of the classification head.
        pooling: `cls` or `mean` for sequence heads, else None.
        label_count: C, or 0 for models without labels.
        biases: Whether norms, attention and feed-forward layers have biases, in this order.
        classifier_bias: Whether the head's dense layer has one.
    """

    vocabulary_size: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    layer_types: tuple[LayerType, ...]
    half_window: int
    thetas: tuple[tuple[LayerType, float], ...]
    norm_eps: float
    activation: str
    classifier_activation: str
    pooling: Literal["cls", "mean"] | None
    label_count: int
    biases: tuple[bool, bool, bool]
    classifier_bias: bool

    @property
    def head_width(self) -> int:
        """D, the width of one attention head."""
        return self.hidden_size // self.attention_heads

    def inverse_frequencies(self, layer_type: LayerType) -> NDArray[np.float32]:
        """Compute the RoPE table of a layer type: (D / 2,) float32, radians per position."""
        exponents = np.arange(0, self.head_width, 2, dtype=np.float32) / np.float32(self.head_width)
        return (1.0 / np.float32(dict(self.thetas)[layer_type]) ** exponents).astype(np.float32)


def read_architecture(config: Mapping[str, Any], allowed_keys: Collection[str] = ()) -> Architecture:
    """Derive the effective architecture from the content of config.json.

    Args:
        config: The parsed file.
        allowed_keys: Unknown keys that the caller vouches for.

    Raises:
        CheckpointError: an unknown key, an unsupported model, or values that contradict each other.
    """
    _refuse_unknown_keys(config, allowed_keys)
    if config.get("model_type") != "modernbert":
        raise _unsupported(f"model_type {config.get('model_type')!r}", "modernbert")
    layers = _whole(config, "num_hidden_layers")
    layer_types = _layer_types(config, layers)
    hidden, attention_heads = _whole(config, "hidden_size"), _whole(config, "num_attention_heads")
    if hidden % attention_heads or (hidden // attention_heads) % 2:
        raise _unsupported(f"{hidden} hidden units on {attention_heads} heads", "an even number of units a head")
    is_sequence = str(config["architectures"][0]).endswith("ForSequenceClassification")
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise _unsupported(f"classifier_pooling {pooling!r}", "cls or mean")
    return Architecture(
        vocabulary_size=_whole(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_whole(config, "intermediate_size"),
        attention_heads=attention_heads,
        layer_types=layer_types,
        half_window=_whole(config, "local_attention", 128) // 2,
        thetas=_thetas(config),
        norm_eps=float(config.get("norm_eps", 1e-5)),
        activation=str(config.get("hidden_activation", "gelu")),
        classifier_activation=str(config.get("classifier_activation", "gelu")),
        pooling=pooling if is_sequence else None,
        label_count=len(task.read_labels(dict(config))) if "Classification" in config["architectures"][0] else 0,
        biases=(bool(config.get("norm_bias")), bool(config.get("attention_bias")), bool(config.get("mlp_bias"))),
        classifier_bias=bool(config.get("classifier_bias")),
    )


def _refuse_unknown_keys(config: Mapping[str, Any], allowed_keys: Collection[str]) -> None:
    unknown = sorted(set(config) - MATHS_KEYS - INERT_KEYS - set(allowed_keys))
    if unknown:
        raise errors.CheckpointError(
            f"the unknown keys {', '.join(unknown)}",
            expected="only keys whose effect on the answer is known",
            where=CONFIG,
            fix="If a key cannot change an answer, pass --allow-key NAME; else this model is not supported.",
        )


def _layer_types(config: Mapping[str, Any], layers: int) -> tuple[LayerType, ...]:
    declared = config.get("layer_types")
    if declared is None:
        every = _whole(config, "global_attn_every_n_layers", 3)
        return tuple("sliding_attention" if index % every else "full_attention" for index in range(layers))
    if len(declared) != layers or not set(declared) <= set(DEFAULT_THETAS):
        raise _unsupported(f"layer_types {declared}", f"{layers} of full_attention or sliding_attention")
    every_declared = config.get("global_attn_every_n_layers")
    if every_declared is not None:
        implied = tuple("sliding_attention" if index % every_declared else "full_attention" for index in range(layers))
        if tuple(declared) != implied:
            raise _unsupported("layer_types and global_attn_every_n_layers that contradict each other", "one story")
    return tuple(declared)


def _thetas(config: Mapping[str, Any]) -> tuple[tuple[LayerType, float], ...]:
    """Read both generations of RoPE keys; where both are there, they must agree."""
    if config.get("rope_scaling") is not None:
        raise _unsupported(
            f"rope_scaling {json.dumps(config['rope_scaling'])}", "plain RoPE; scaling is not supported yet"
        )
    parameters = config.get("rope_parameters") or {}
    thetas: list[tuple[LayerType, float]] = []
    for layer_type, default in DEFAULT_THETAS.items():
        new = parameters.get(layer_type) or {}
        kind = new.get("rope_type", new.get("type", "default"))
        if kind != "default" or set(new) - {"rope_type", "rope_theta"}:
            raise _unsupported(f"rope_parameters {json.dumps(new)}", "rope_type default and rope_theta only")
        stated = [value for value in (new.get("rope_theta"), config.get(THETA_KEYS[layer_type])) if value is not None]
        if THETA_KEYS[layer_type] in config and config[THETA_KEYS[layer_type]] is None:
            raise _unsupported(f"{THETA_KEYS[layer_type]} null", "a number: readers of both generations differ on null")
        if len({float(value) for value in stated}) > 1:
            raise _unsupported(f"two values of theta for {layer_type}: {stated}", "one")
        thetas.append((layer_type, float(stated[0]) if stated else default))
    return tuple(thetas)


def _whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _unsupported(f"{key} = {value!r}", "a positive whole number")
    return value


def _unsupported(found: str, expected: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found, expected=expected, where=CONFIG, fix="This checkpoint cannot be exported; do not edit it to fit."
    )
