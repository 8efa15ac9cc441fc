"""The ModernBERT family: rotary positions, full and sliding attention, one of two generations of config keys."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from vela.graphs import costs, heads
from vela.verify.architecture import rope
from vela.verify.architecture.keys import label_count, refuse_unknown_keys, unsupported, whole
from vela.verify.architecture.rope_keys import LayerType, Ropes, read_ropes

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
LAYER_TYPES = frozenset(get_args(LayerType))
# What a head's trace depends on, and an encoder's does not; RoPE's frequencies are bound later, like weights, and its
# attention scaling is not: it is a constant of the trace.
HEAD_FACTS = ("pooling", "classifier_activation", "classifier_bias")
BOUND_LATER = ("label_count", "ropes")


@dataclass(frozen=True, slots=True)
class ModernBert:
    """What the forward pass of a ModernBERT depends on, with every default resolved.

    Attributes:
        vocabulary_size: Rows of the embedding table.
        hidden_size: H.
        intermediate_size: Width of the gated feed-forward layer.
        attention_heads: A; each is H / A wide.
        layer_types: One per layer.
        half_window: A sliding layer's query i sees keys j with |i - j| <= half_window.
        ropes: Rotary positions per layer type.
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
    ropes: Ropes
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

    @property
    def layers(self) -> int:
        """L."""
        return len(self.layer_types)

    @property
    def takes_pairs(self) -> bool:
        """See `Architecture.takes_pairs`: there are no token types."""
        return True

    @property
    def encoder_facts(self) -> Mapping[str, object]:
        """See `Architecture.encoder_facts`."""
        facts = {name: value for name, value in asdict(self).items() if name not in (*HEAD_FACTS, *BOUND_LATER)}
        return facts | {"attention_scalings": {kind: used.attention_scaling for kind, used in self.ropes}}

    @property
    def head_facts(self) -> Mapping[str, object]:
        """See `Architecture.head_facts`."""
        names = ("hidden_size", "norm_eps", "biases", *HEAD_FACTS)
        return {name: value for name, value in asdict(self).items() if name in names}

    @property
    def run_costs(self) -> costs.ModelCosts:
        """See `Architecture.run_costs`."""
        local_layers = self.layer_types.count("sliding_attention")
        return costs.ModelCosts(self.hidden_size, self.intermediate_size, self.layers, local_layers, self.half_window)

    def rotations(self, exit_layer: int) -> Mapping[str, rope.Rope]:
        """See `Architecture.rotations`: one for each layer type."""
        return {kind: used for kind, used in self.ropes if kind in self.layer_types[:exit_layer]}

    def pools_by_mask(self, decoder: heads.Decoder) -> bool:
        """See `Architecture.pools_by_mask`."""
        return isinstance(decoder, heads.EmbeddingDecoder) or self.pooling == "mean"

    def uses(self, tensor_name: str, decoder: heads.Decoder) -> bool:
        """See `Architecture.uses`: every tensor."""
        return True


def read_modernbert(config: Mapping[str, Any], allowed_keys: Collection[str]) -> ModernBert:
    """Derive the effective architecture of a ModernBERT; see `read_architecture`."""
    refuse_unknown_keys(config, MATHS_KEYS | INERT_KEYS, allowed_keys)
    layers = whole(config, "num_hidden_layers")
    layer_types = _layer_types(config, layers)
    hidden, attention_heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    if hidden % attention_heads or (hidden // attention_heads) % 2:
        raise unsupported(f"{hidden} hidden units on {attention_heads} heads", "an even number of units a head")
    is_sequence = str(config["architectures"][0]).endswith("ForSequenceClassification")
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise unsupported(f"classifier_pooling {pooling!r}", "cls or mean")
    return ModernBert(
        vocabulary_size=whole(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=whole(config, "intermediate_size"),
        attention_heads=attention_heads,
        layer_types=layer_types,
        half_window=whole(config, "local_attention", 128) // 2,
        ropes=read_ropes(config),
        norm_eps=float(config.get("norm_eps", 1e-5)),
        activation=str(config.get("hidden_activation", "gelu")),
        classifier_activation=str(config.get("classifier_activation", "gelu")),
        pooling=pooling if is_sequence else None,
        label_count=label_count(config),
        biases=(bool(config.get("norm_bias")), bool(config.get("attention_bias")), bool(config.get("mlp_bias"))),
        classifier_bias=bool(config.get("classifier_bias")),
    )


def _layer_types(config: Mapping[str, Any], layers: int) -> tuple[LayerType, ...]:
    declared = config.get("layer_types")
    if declared is None:
        every = whole(config, "global_attn_every_n_layers", 3)
        return tuple("sliding_attention" if index % every else "full_attention" for index in range(layers))
    if len(declared) != layers or not set(declared) <= LAYER_TYPES:
        raise unsupported(f"layer_types {declared}", f"{layers} of full_attention or sliding_attention")
    every_declared = config.get("global_attn_every_n_layers")
    if every_declared is not None:
        implied = tuple("sliding_attention" if index % every_declared else "full_attention" for index in range(layers))
        if tuple(declared) != implied:
            raise unsupported("layer_types and global_attn_every_n_layers that contradict each other", "one story")
    return tuple(declared)
