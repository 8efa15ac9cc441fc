"""The BERT family: learned positions, full attention in every layer, biases everywhere.

Graphs take no token types: every token is of type 0, as for a single text, so that the contract stays two inputs.
Source: Transformers' BertModel; the defaults are those of its configuration.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vela.graphs import costs, heads
from vela.verify.architecture import rope
from vela.verify.architecture.keys import label_count, refuse_unknown_keys, unsupported, whole

MATHS_KEYS = frozenset(
    "architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "hidden_act max_position_embeddings type_vocab_size layer_norm_eps position_embedding_type is_decoder "
    "add_cross_attention problem_type id2label label2id num_labels".split()
)
# Source: real BERT and MiniLM configs carry these; none of them reaches the forward pass at inference.
INERT_KEYS = frozenset(
    "attention_probs_dropout_prob hidden_dropout_prob classifier_dropout initializer_range pad_token_id bos_token_id "
    "eos_token_id dtype torch_dtype transformers_version gradient_checkpointing use_cache tie_word_embeddings "
    "_name_or_path _attn_implementation_autoset directionality pooler_fc_size pooler_num_attention_heads "
    "pooler_num_fc_layers pooler_size_per_head pooler_type chunk_size_feed_forward is_encoder_decoder "
    "output_attentions output_hidden_states return_dict".split()
)
LENGTH_STEP = 64  # there is no window; lengths around multiples of this are as good as any others


@dataclass(frozen=True, slots=True)
class Bert:
    """What the forward pass of a BERT depends on, with every default resolved.

    Attributes:
        vocabulary_size: Rows of the embedding table.
        hidden_size: H.
        intermediate_size: Width of the feed-forward layer.
        attention_heads: A; each is H / A wide.
        layers: L.
        positions: Rows of the position table, and the longest input.
        token_types: Rows of the token type table; the first is added to every token.
        norm_eps: LayerNorm epsilon.
        activation: Of the feed-forward layers.
        label_count: C, or 0 for models without labels.
    """

    vocabulary_size: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    layers: int
    positions: int
    token_types: int
    norm_eps: float
    activation: str
    label_count: int

    @property
    def half_window(self) -> int:
        """See `Architecture.half_window`."""
        return LENGTH_STEP

    @property
    def takes_pairs(self) -> bool:
        """See `Architecture.takes_pairs`: a pair's second text is of token type 1, which no graph is told."""
        return False

    @property
    def encoder_facts(self) -> Mapping[str, object]:
        """See `Architecture.encoder_facts`."""
        return {"family": "bert"} | {name: value for name, value in asdict(self).items() if name != "label_count"}

    @property
    def head_facts(self) -> Mapping[str, object]:
        """See `Architecture.head_facts`."""
        return {"family": "bert", "hidden_size": self.hidden_size}

    @property
    def run_costs(self) -> costs.ModelCosts:
        """See `Architecture.run_costs`: no layer is local, and the feed-forward layer has no gate."""
        return costs.ModelCosts(
            self.hidden_size, self.intermediate_size, self.layers, local_layers=0, feed_forward_products=2
        )

    @property
    def head_width(self) -> int:
        """See `Architecture.head_width`."""
        return self.hidden_size // self.attention_heads

    def rotations(self, exit_layer: int) -> Mapping[str, rope.Rope]:
        """See `Architecture.rotations`: positions are learned."""
        return {}

    def pools_by_mask(self, decoder: heads.Decoder) -> bool:
        """See `Architecture.pools_by_mask`: sequence heads read the first token."""
        return isinstance(decoder, heads.EmbeddingDecoder)

    def uses(self, tensor_name: str, decoder: heads.Decoder) -> bool:
        """See `Architecture.uses`: position numbers are no weights, and only sequence heads use the pooler."""
        is_pooled = isinstance(decoder, heads.SequenceDecoder | heads.ScoresDecoder)
        is_pooler = tensor_name.removeprefix("bert.").startswith("pooler.")
        return not tensor_name.endswith("embeddings.position_ids") and (is_pooled or not is_pooler)


def read_bert(config: Mapping[str, Any], allowed_keys: Collection[str]) -> Bert:
    """Derive the effective architecture of a BERT; see `read_architecture`."""
    refuse_unknown_keys(config, MATHS_KEYS | INERT_KEYS, allowed_keys)
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise unsupported("a decoder", "an encoder: is_decoder and add_cross_attention false")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise unsupported(f"position_embedding_type {config['position_embedding_type']!r}", "absolute")
    hidden, attention_heads = whole(config, "hidden_size", 768), whole(config, "num_attention_heads", 12)
    if hidden % attention_heads:
        raise unsupported(f"{hidden} hidden units on {attention_heads} heads", "a whole number of units a head")
    return Bert(
        vocabulary_size=whole(config, "vocab_size", 30522),
        hidden_size=hidden,
        intermediate_size=whole(config, "intermediate_size", 3072),
        attention_heads=attention_heads,
        layers=whole(config, "num_hidden_layers", 12),
        positions=whole(config, "max_position_embeddings", 512),
        token_types=whole(config, "type_vocab_size", 2),
        norm_eps=float(config.get("layer_norm_eps", 1e-12)),
        activation=str(config.get("hidden_act", "gelu")),
        label_count=label_count(config),
    )
