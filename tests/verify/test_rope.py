"""Rotary positions read from config.json: hand-computed frequencies, both generations of keys, and every trap."""

import math

import numpy as np
import pytest

from vela.graphs import errors
from vela.verify import architecture
from vela.verify.architecture import rope, rope_keys

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
OLD_THETAS = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}


def read(**config: object) -> dict[str, rope.Rope]:
    return dict(rope_keys.read_ropes(config))


def nested(full: object, sliding: object = None) -> dict[str, object]:
    return {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}


def test_frequencies_are_powers_of_theta():
    found = rope.PlainRope(10000.0).frequencies(16)

    assert found == pytest.approx([10000.0 ** (-2 * i / 16) for i in range(8)], rel=1e-6)
    assert found.dtype == np.float32


def test_linear_scaling_divides_every_frequency():
    assert rope.LinearRope(100.0, 4.0).frequencies(4) == pytest.approx([0.25, 0.025])


def test_yarn_keeps_fast_frequencies_divides_slow_ones_and_blends_between():
    # Indices that turn 4 and 1 times within 64 tokens: 8 ln(64 / 8 pi) / (2 ln 1e4) = 0.41, rounded down to 0, and
    # 8 ln(64 / 2 pi) / (2 ln 1e4) = 1.008, rounded up to 2. So the ramp over the indices 0, 1, 2, 3 is 0, 1/2, 1, 1.
    scaled = rope.YarnRope(1e4, 4.0, 64, 4.0, 1.0, is_truncated=True, attention_scaling=1.0)

    assert scaled.frequencies(8) == pytest.approx([1.0, 0.1 * (0.5 + 0.5 / 4), 0.01 / 4, 0.001 / 4])


def test_yarn_without_truncation_blends_between_the_real_bounds():
    low, high = (8 * math.log(64 / (turns * 2 * math.pi)) / (2 * math.log(1e4)) for turns in (4, 1))
    scaled = rope.YarnRope(1e4, 4.0, 64, 4.0, 1.0, is_truncated=False, attention_scaling=1.0)

    divided = (1 - low) / (high - low)
    assert scaled.frequencies(8) == pytest.approx([1.0, 0.1 * (1 - divided + divided / 4), 0.01 / 4, 0.001 / 4])


def test_llama3_blends_over_the_turns_within_the_original_length():
    # Turns within 64 tokens: 64 / 2 pi = 10.2, then 1.0186 and 0.10186; the ramp is (turns - 1) / 3.
    smooth = (6.4 / (2 * math.pi) - 1) / 3

    found = rope.Llama3Rope(1e3, 8.0, 64, 1.0, 4.0).frequencies(6)

    assert found == pytest.approx([1.0, 0.1 * ((1 - smooth) / 8 + smooth), 0.01 / 8])


def test_yarn_scales_attention_as_the_paper_says_where_the_config_does_not():
    assert read(**nested(YARN))["full_attention"].attention_scaling == pytest.approx(0.1 * math.log(4) + 1)


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({"attention_factor": 1.5}, 1.5),
        ({"attention_factor": None}, 0.1 * math.log(4) + 1),
        ({"mscale": 0.7, "mscale_all_dim": 1.2}, (0.07 * math.log(4) + 1) / (0.12 * math.log(4) + 1)),
        ({"factor": 1.0}, 1.0),
    ],
)
def test_yarn_s_attention_scaling_is_read_in_each_way_it_is_written(keys, scaling):
    assert read(**nested(YARN | keys))["full_attention"].attention_scaling == pytest.approx(scaling)


@pytest.mark.parametrize("scaling", [YARN, LINEAR, LLAMA3])
def test_both_generations_read_alike(scaling):
    old = read(rope_scaling=scaling, **OLD_THETAS)
    new = read(**nested(scaling | {"rope_theta": 160000.0}, scaling | {"rope_theta": 10000.0}))

    assert old == new
    assert [used.theta for used in old.values()] == [160000.0, 10000.0]


@pytest.mark.parametrize("scaling", [YARN, LINEAR, LLAMA3])
def test_an_entry_may_be_named_by_type(scaling):
    renamed = {"type" if key == "rope_type" else key: value for key, value in scaling.items()}

    assert (
        read(**nested(renamed)) == read(**nested(scaling)) == read(**nested(scaling | {"type": scaling["rope_type"]}))
    )


def test_a_layer_type_without_entry_is_plain_with_its_old_or_default_theta():
    assert read(**nested(YARN))["sliding_attention"] == rope.PlainRope(10000.0)
    assert read(**nested(YARN), local_rope_theta=5000.0)["sliding_attention"] == rope.PlainRope(5000.0)
    assert read() == {"full_attention": rope.PlainRope(160000.0), "sliding_attention": rope.PlainRope(10000.0)}


def test_a_null_scaling_is_none():
    assert read(rope_scaling=None, **OLD_THETAS) == read()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OLD_THETAS | {"local_rope_theta": None}, "local_rope_theta null"),
        (OLD_THETAS | {"global_rope_theta": None}, "global_rope_theta null"),
        (nested({"rope_type": "default", "rope_theta": None}), "rope_theta null"),
        (nested({"rope_theta": 1e4}) | {"global_rope_theta": 1e5}, "two values of theta for full_attention"),
        (nested({"rope_theta": "1e4"}), "rope_theta '1e4'"),
        (nested({"rope_theta": 0}), "rope_theta 0"),
        ({"rope_scaling": YARN | {"rope_type": "yarn", "type": "linear"}}, "rope_type 'yarn' and type 'linear'"),
        (nested({"rope_type": "default", "type": "yarn"}), "rope_type 'default' and type 'yarn'"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "Transformers ignores `type`"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "Transformers ignores `type`"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "without original_max_position_embeddings"),
        (nested(YARN | {"original_max_position_embeddings": None}), "without original_max_position_embeddings"),
        (nested(YARN | {"original_max_position_embeddings": 512.5}), "512.5"),
        (nested(LLAMA3 | {"low_freq_factor": None}), "without low_freq_factor"),
        (nested({"rope_type": "linear"}), "linear RoPE without factor"),
        (nested(YARN | {"factor": 0.5}), "factor 0.5"),
        (nested(YARN | {"factor": True}), "factor True"),
        (nested(YARN | {"factor": float("inf")}), "factor inf"),
        (nested(YARN | {"attention_factor": 0.0}), "attention_factor 0.0"),
        (nested(YARN | {"mscale": 0.7}), "mscale alone"),
        (nested(YARN | {"beta_fast": 1.0}), "beta_fast 1 and beta_slow 1"),
        (nested(YARN | {"truncate": None}), "truncate None"),
        (nested(YARN | {"rope_theta": 1.0}), "theta 1"),
        (nested(LLAMA3 | {"high_freq_factor": 1.0}), "low_freq_factor 1 and high_freq_factor 1"),
        (nested({"rope_type": "default", "factor": 4.0}), "unknown keys factor of default RoPE"),
        (nested(YARN | {"partial_rotary_factor": 0.5}), "unknown keys partial_rotary_factor of yarn RoPE"),
        (nested(LINEAR | {"finetuned": True}), "unknown keys finetuned"),
        ({"rope_parameters": YARN}, "Transformers drops what stands beside them"),
        ({"rope_parameters": nested(YARN)["rope_parameters"], "rope_scaling": YARN}, "both rope_parameters and"),
        ({"rope_parameters": ["yarn"]}, "rope_parameters"),
        (nested("yarn"), "full_attention"),
        (nested({"rope_type": "dynamic", "factor": 4.0}), "depend on the length of the run"),
        (nested(None, {"rope_type": "longrope"}), "depend on the length of the run"),
        ({"rope_scaling": {"rope_type": "mrope"}}, "kind 'mrope'"),
        (nested({"rope_type": None}), "kind None"),
    ],
)
def test_what_libraries_would_read_otherwise_is_refused_with_the_reason(config, message):
    with pytest.raises(errors.CheckpointError, match=message):
        rope_keys.read_ropes(config)


def test_a_trace_depends_on_the_attention_scaling_and_on_no_other_part_of_rope():
    base = {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        **{"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48},
        **{"num_hidden_layers": 3, "num_attention_heads": 2},
    }

    def facts(parameters: dict[str, object]) -> object:
        return architecture.read_architecture(base | nested(parameters)).encoder_facts

    assert facts(YARN) != facts(YARN | {"attention_factor": 1.5})
    assert facts(YARN) == facts(YARN | {"original_max_position_embeddings": 128, "rope_theta": 1000.0})
    assert facts(YARN | {"attention_factor": 1.0}) == facts(LINEAR) == facts(LLAMA3) == facts({})


@pytest.mark.parametrize(
    ("used", "description"),
    [
        (rope.PlainRope(10000.0), "theta 10,000"),
        (rope.LinearRope(160000.0, 4.0), "linear scaling by 4 of theta 160,000"),
        (rope.YarnRope(160000.0, 4.0, 64, 32.0, 1.0, is_truncated=True, attention_scaling=1.0), "no single theta"),
    ],
)
def test_frequencies_are_described_by_what_they_show(used, description):
    assert description in rope.describe_frequencies(used.frequencies(24))
