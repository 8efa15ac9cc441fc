"""Where ids and mask go: followed through reshapes, functions and branches, in graphs of a few operators."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from vela.graphs import errors
from vela.verify import graph_file
from vela.verify.static import dataflow

SIGNATURE = "(int64[1,T] input_ids, int64[1,T] attention_mask) => (float[1,2] logits)"
TABLE = "<float[3,2] table = {1, 2, 3, 4, 5, 6}, int64[1] one = {1}, int64 word = {2}>"
# A mean over tokens of what ids look up, then a softmax over keys that the mask takes part in.
MEAN = """
    rows = Gather (table, input_ids)
    weights = Cast <to = 1> (attention_mask)
    wide = Unsqueeze (weights, minus)
    weighted = Mul (rows, wide)
    total = ReduceSum <keepdims = 0> (weighted, one)
    count = ReduceSum (weights, one)
    mean = Div (total, count)
"""


@pytest.fixture
def parse(tmp_path: Path):
    def run(body: str, functions: str = "") -> graph_file.GraphFile:
        table = TABLE.replace("<", "<int64[1] minus = {2}, ", 1)
        text = f'<ir_version: 9, opset_import: ["" : 17, "own" : 1]> g {SIGNATURE} {table} {{ {body} }} {functions}'
        path = tmp_path / "graph.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return graph_file.GraphFile.read(path)

    return run


def refused(graph: graph_file.GraphFile, use: dataflow.MaskUse | None) -> str:
    with pytest.raises(errors.GraphError) as caught:
        dataflow.check_dataflow(graph, use)
    return caught.value.found


def test_a_mean_over_tokens_may_read_the_mask_where_the_head_takes_one(parse):
    graph = parse(MEAN + "logits = Identity (mean)")

    assert "attention_mask is read by attention and a mean" in dataflow.check_dataflow(graph, "mean")
    assert refused(graph, "attention") == "attention_mask reaches logits around attention"
    assert "attention_mask" not in dataflow.check_dataflow(graph, None)


def test_the_mask_may_go_through_a_softmax(parse):
    body = MEAN.replace("mean = Div", "kept = Div") + "odd = Add (kept, count) logits = Softmax (odd)"

    assert "attention_mask is read by attention alone" in dataflow.check_dataflow(parse(body), "attention")


@pytest.mark.parametrize("use", ["attention", "mean"])
def test_pads_that_are_counted_are_seen(parse, use):
    assert "attention_mask reaches logits" in refused(parse(MEAN + "logits = Add (mean, count)"), use)


@pytest.mark.parametrize(
    "carried",
    [
        "there = Equal (input_ids, word)",
        "flat = Reshape (input_ids, minus) there = Equal (flat, word)",
        "small = Cast <to = 6> (input_ids) as = Cast <to = 6> (word) there = Equal (small, as)",
    ],
)
def test_a_token_that_switches_the_answer_is_seen_whatever_carries_it(parse, carried):
    body = f"{MEAN} {carried} number = Cast <to = 1> (there) more = ReduceMax (number) logits = Add (mean, more)"

    assert "(Equal), no lookup" in refused(parse(body), None)


def test_ids_that_are_looked_up_in_and_not_by_are_seen(parse):
    body = f"{MEAN} picked = Gather (input_ids, word) number = Cast <to = 1> (picked) logits = Add (mean, number)"

    assert "(Gather), no lookup" in refused(parse(body), None)


@pytest.mark.parametrize("body", ["rows = Constant <value = float[1,2] {1, 2}> () logits = Identity (rows)"])
def test_ids_that_nothing_reads_are_no_pass(parse, body):
    assert refused(parse(body), None) == "no table that input_ids look up"


def test_lengths_may_be_read(parse):
    body = f"{MEAN} size = Shape (input_ids) number = Cast <to = 1> (size) logits = Div (mean, number)"

    assert dataflow.check_dataflow(parse(body), "mean")


def test_a_function_that_the_ids_are_given_to_is_looked_into(parse):
    functions = """
        <domain: "own", opset_import: ["" : 17]> look (values) => (found) {
            zero = Constant <value = int64 {0}> ()
            found = Equal (values, zero)
        }"""
    body = f"{MEAN} there = own.look (input_ids) n = Cast <to = 1> (there) m = ReduceMax (n) logits = Add (mean, m)"

    assert "(Equal), no lookup" in refused(parse(body, functions), None)


def test_what_a_function_gives_back_is_followed_further(parse):
    functions = """
        <domain: "own", opset_import: ["" : 17]> pass (values) => (same) {
            same = Identity (values)
        }"""
    body = (
        f"{MEAN} same = own.pass (input_ids) there = Equal (same, word) n = Cast <to = 1> (there) "
        "m = ReduceMax (n) logits = Add (mean, m)"
    )

    assert "(Equal), no lookup" in refused(parse(body, functions), None)


def test_a_branch_that_the_ids_come_out_of_is_followed_further(parse):
    body = f"""{MEAN}
        size = Size (input_ids) is_any = Greater (size, word)
        same = If (is_any) <
            then_branch = then () => (int64[1,T] kept) {{ kept = Identity (input_ids) }},
            else_branch = other () => (int64[1,T] left) {{ left = Identity (attention_mask) }}
        >
        there = Equal (same, word) n = Cast <to = 1> (there) m = ReduceMax (n) logits = Add (mean, m)"""

    assert "(Equal), no lookup" in refused(parse(body), None)
