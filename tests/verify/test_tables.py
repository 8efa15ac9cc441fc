"""Float tables of a graph are only those that config.json gives: the right one passes, its neighbour does not."""

import numpy as np
import pytest

from vela.graphs import errors
from vela.verify import architecture
from vela.verify.static import census, graph_constants, tables

CONFIG = {
    "model_type": "modernbert",
    "architectures": ["ModernBertModel"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "local_attention": 8,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}
READING = architecture.read_architecture(CONFIG)
BERT = architecture.read_architecture(
    {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32, "num_attention_heads": 2}
)
FREQUENCIES = (10000.0 ** -(np.arange(8) / 8)).astype(np.float32)
ANGLES = np.outer(np.arange(300, dtype=np.float32), FREQUENCIES)
PLACES = np.arange(20)
WINDOW = np.abs(PLACES[:, None] - PLACES[None, :]) <= 4
LEAST = np.finfo(np.float32).min


@pytest.mark.parametrize(
    "table",
    [
        FREQUENCIES,
        FREQUENCIES[None, :, None],
        FREQUENCIES.astype(np.float16),
        ANGLES[None],
        np.concatenate([ANGLES, ANGLES], axis=1),
        np.cos(ANGLES),
        np.sin(np.concatenate([ANGLES, ANGLES], axis=1))[None, None],
        np.cos(ANGLES).astype(np.float16),
        np.arange(512, dtype=np.float32)[None],
        np.where(WINDOW, 0, LEAST).astype(np.float32)[None, None],
        np.where(WINDOW, 0, -np.inf).astype(np.float32),
        WINDOW.astype(np.float32),
        np.full((1, 1, 20, 20), LEAST, np.float32),
    ],
    ids=[
        *("frequencies", "frequencies with more dimensions", "frequencies in FP16", "angles", "doubled angles"),
        *("cosines", "doubled sines", "cosines in FP16", "positions"),
        *("window to the least number", "window to minus infinity", "window of ones", "one number"),
    ],
)
def test_a_table_that_the_config_gives_is_one(table):
    assert tables.is_table_of_any_exporter(table, READING)


@pytest.mark.parametrize(
    "table",
    [
        FREQUENCIES * np.float32(1.001),
        (9000.0 ** -(np.arange(8) / 8)).astype(np.float32),
        ANGLES * np.float32(1.001),
        np.concatenate([ANGLES, -ANGLES], axis=1),
        np.cos(ANGLES) * np.float32(1.1),
        np.cos(ANGLES[::-1]),
        np.arange(1, 513, dtype=np.float32),
        np.where(np.abs(PLACES[:, None] - PLACES[None, :]) <= 5, 0, LEAST).astype(np.float32),
        np.where(PLACES[:, None] >= PLACES[None, :], 0, LEAST).astype(np.float32),
        np.where(WINDOW, 0, -1.0).astype(np.float32),
        np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32),
    ],
    ids=[
        *("scaled frequencies", "another theta", "scaled angles", "halves that differ", "scaled cosines"),
        *("positions backwards", "positions from 1", "a wider window", "a causal mask", "a weak mask", "a weight"),
    ],
)
def test_a_table_that_the_config_does_not_give_is_none(table):
    assert not tables.is_table_of_any_exporter(table, READING)


@pytest.mark.parametrize("table", [FREQUENCIES, np.cos(ANGLES), np.where(WINDOW, 0, LEAST).astype(np.float32)])
def test_a_family_without_rotations_or_windows_has_no_such_tables(table):
    assert not tables.is_table_of_any_exporter(table, BERT)


def test_cosines_are_told_from_sines_and_by_whose_theta():
    (cosine,) = tables.find_turns(np.cos(ANGLES), READING)
    (sine,) = tables.find_turns(np.sin(ANGLES), READING)

    assert (cosine.function, sine.function) == ("Cos", "Sin")
    assert np.allclose(cosine.frequencies, FREQUENCIES)


def constant(dtype: str, shape: tuple[int, ...] = (16, 16)) -> graph_constants.Constant:
    return graph_constants.Constant("c", None, np.ones(shape, np.dtype(dtype)))


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("model.onnx", ["float32"]),
        ("model_fp16.onnx", ["float16", "float16", "float32"]),
        ("model.bf16.onnx", ["bfloat16"]),
        ("model_int8.onnx", ["int8", "uint8", "float32"]),
        ("model_quantized.onnx", ["uint8"]),
        ("MODEL-FP32.onnx", ["float32"]),
        ("prefp16x.onnx", ["float32"]),
    ],
)
def test_a_name_that_says_what_a_file_holds_passes(name, dtypes):
    assert census.check_census([constant(dtype) for dtype in dtypes], name).startswith("matrices: ")


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("model_fp16.onnx", ["float32"]),
        ("model_fp16.onnx", ["float32", "float16"]),
        ("model-half.onnx", ["bfloat16"]),
        ("model_int8.onnx", ["float32"]),
        ("model_fp32.onnx", ["int8"]),
        ("model_fp16.onnx", []),
    ],
)
def test_a_name_that_says_otherwise_fails(name, dtypes):
    with pytest.raises(errors.GraphError, match="dtype census"):
        census.check_census([constant(dtype) for dtype in dtypes], name)


def test_vectors_and_steps_are_not_counted():
    small = [constant("float32", (64,)), constant("float32", (1, 64)), constant("float32", (4, 4)), constant("int64")]

    assert "1 in fp16" in census.check_census([*small, constant("float16")], "model_fp16.onnx")
