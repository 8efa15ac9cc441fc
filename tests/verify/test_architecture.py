import pytest

from vela.graphs import costs, errors
from vela.verify import architecture
from vela.verify.architecture import rope

NEW = {
    "architectures": ["ModernBertForSequenceClassification"],
    "model_type": "modernbert",
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "local_attention": 16,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "classifier_pooling": "mean",
    "id2label": {"0": "no", "1": "yes"},
    "label2id": {"no": 0, "yes": 1},
}
OLD = {key: value for key, value in NEW.items() if key not in ("layer_types", "rope_parameters")} | {
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}


def test_both_generations_of_config_are_read_to_the_same_architecture():
    assert architecture.read_architecture(NEW) == architecture.read_architecture(OLD)


def test_effective_values_are_resolved():
    found = architecture.read_architecture(NEW)

    assert found.half_window == 8
    assert dict(found.ropes) == {
        "full_attention": rope.PlainRope(160000.0),
        "sliding_attention": rope.PlainRope(10000.0),
    }
    assert found.label_count == 2
    assert found.pooling == "mean"


def test_pooling_is_cls_where_the_config_does_not_say():
    config = {key: value for key, value in NEW.items() if key != "classifier_pooling"}

    assert architecture.read_architecture(config).pooling == "cls"


def test_an_unknown_key_is_named_and_can_be_vouched_for():
    with pytest.raises(errors.CheckpointError, match="mystery_scale"):
        architecture.read_architecture(NEW | {"mystery_scale": 2.0})

    assert architecture.read_architecture(NEW | {"mystery_scale": 2.0}, ["mystery_scale"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"global_attn_every_n_layers": 2}, "contradict"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"model_type": "roberta"}, "modernbert or bert"),
        ({"classifier_pooling": "max"}, "max"),
        ({"hidden_size": 33}, "33 hidden units"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"label2id": {"no": 1, "yes": 0}}, "label2id"),
    ],
)
def test_what_cannot_be_read_with_certainty_is_refused(change, message):
    with pytest.raises(errors.CheckpointError, match=message):
        architecture.read_architecture(NEW | change)


BERT = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "id2label": {"0": "no", "1": "yes"},
}


def test_a_bert_s_values_are_resolved_with_the_family_s_defaults():
    found = architecture.read_architecture(BERT)

    assert (found.hidden_size, found.layers, found.attention_heads, found.intermediate_size) == (384, 6, 12, 3072)
    assert (found.vocabulary_size, found.positions, found.token_types) == (30522, 512, 2)
    assert (found.norm_eps, found.activation, found.label_count) == (1e-12, "gelu", 2)
    assert found.rotations(found.layers) == {}


def test_each_family_says_what_its_forward_pass_costs():
    modernbert = architecture.read_architecture(NEW).run_costs
    bert = architecture.read_architecture(BERT).run_costs

    assert modernbert == costs.ModelCosts(32, 48, 4, local_layers=2, half_window=8, feed_forward_products=3)
    assert (bert.layers, bert.local_layers, bert.feed_forward_products) == (6, 0, 2)


def test_a_key_of_another_family_is_unknown_to_a_bert():
    with pytest.raises(errors.CheckpointError, match="local_attention"):
        architecture.read_architecture(BERT | {"local_attention": 128})


def test_traces_are_shared_by_what_they_depend_on_and_by_nothing_else():
    modern, bert = architecture.read_architecture(NEW), architecture.read_architecture(BERT)
    more = architecture.read_architecture(BERT | {"id2label": {"0": "no", "1": "yes", "2": "perhaps"}})
    other = architecture.read_architecture(NEW | {"classifier_pooling": "cls"})

    assert bert.encoder_facts == more.encoder_facts
    assert bert.head_facts == more.head_facts
    assert modern.encoder_facts == other.encoder_facts
    assert modern.head_facts != other.head_facts
    assert bert.encoder_facts != architecture.read_architecture(BERT | {"hidden_act": "relu"}).encoder_facts
