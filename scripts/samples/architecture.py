"""The shape of the samples and the two generations of config.json they are written in.

Transformers 4 wrote `global_rope_theta`, `local_rope_theta` and `global_attn_every_n_layers`; Transformers 5 writes
`rope_parameters` and `layer_types`. The samples hold both, so that readers of either are tried on real files.
"""

from transformers import ModernBertConfig

VOCAB_SIZE = 3072
HIDDEN_SIZE = 96
LAYER_COUNT = 6
HEAD_COUNT = 4
INTERMEDIATE_SIZE = 144
# Tokens attend to 16 neighbours on each side in the sliding layers.
LOCAL_ATTENTION = 32
GLOBAL_EVERY_N_LAYERS = 3
MAX_POSITIONS = 32768
GLOBAL_THETA = 160000.0
LOCAL_THETA = 10000.0


def sample_config(
    *, local_theta: float = LOCAL_THETA, labels: list[str] | None = None, **changes: object
) -> ModernBertConfig:
    """Build the configuration of one sample.

    Args:
        local_theta: base of the rotary angles in the sliding layers.
        labels: names of the classes in index order, for the classifiers.
        changes: any further field of the configuration.
    """
    named = {}
    if labels is not None:
        named = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    return ModernBertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=LAYER_COUNT,
        num_attention_heads=HEAD_COUNT,
        intermediate_size=INTERMEDIATE_SIZE,
        local_attention=LOCAL_ATTENTION,
        max_position_embeddings=MAX_POSITIONS,
        layer_types=[
            "sliding_attention" if index % GLOBAL_EVERY_N_LAYERS else "full_attention" for index in range(LAYER_COUNT)
        ],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": GLOBAL_THETA},
            "sliding_attention": {"rope_type": "default", "rope_theta": local_theta},
        },
        pad_token_id=0,
        eos_token_id=1,
        cls_token_id=1,
        sep_token_id=1,
        bos_token_id=2,
        **named,
        **changes,
    )


def config_json(config: ModernBertConfig, architecture: str, *, legacy: bool) -> dict[str, object]:
    """Return the content of config.json in the layout of Transformers 5, or of Transformers 4 when `legacy`."""
    content = config.to_dict()
    for runtime_field in ("transformers_version", "_name_or_path", "torch_dtype", "use_cache"):
        content.pop(runtime_field, None)
    content |= {"architectures": [architecture], "dtype": "float32"}
    for rate in ("attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout"):
        content[rate] = 0.0
    if not legacy:
        return dict(sorted(content.items()))
    rope = content.pop("rope_parameters")
    del content["layer_types"]
    content |= {
        "global_attn_every_n_layers": GLOBAL_EVERY_N_LAYERS,
        "global_rope_theta": rope["full_attention"]["rope_theta"],
        "local_rope_theta": rope["sliding_attention"]["rope_theta"],
        "position_embedding_type": "sans_pos",
        "torch_dtype": content.pop("dtype"),
    }
    return dict(sorted(content.items()))
