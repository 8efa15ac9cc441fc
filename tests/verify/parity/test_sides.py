"""Sides in this process: the samples' checkpoints in PyTorch, their bundles, and graphs of other weights."""

import json
import shutil

import numpy as np
import pytest

from vela.export import parity_side
from vela.graphs import contract, errors
from vela.serve import answers
from vela.serve.device import CPU
from vela.verify import checkpoint
from vela.verify.parity import asking, comparison, inputs, jobs, recording, side, side_bundle, side_onnx

MODES = {
    "tiny-intent": "sequence",
    "tiny-guard": "sequence_windows",
    "tiny-multilabel": "operating_point",
    "tiny-pii": "token_windows",
    "tiny-pii_truncate": "tokens",
    "tiny-grounded": "grounded",
    "tiny-embedding": "embedding",
    "tiny-reranker": "rerank",
}


@pytest.fixture(scope="session")
def bundle_side(released, table):
    return side_bundle.BundleSide.of_folder(released / "bundles", table, CPU, "this_engine")


@pytest.fixture(scope="session")
def torch_side(checkpoints, table):
    return parity_side.side_of(checkpoints["tiny-pii"].parent, table)


@pytest.fixture(scope="session")
def pair(tmp_path_factory, sample_jobs, bundle_side, torch_side):
    """All jobs as both sides answer them: the paths of PyTorch's file and of the bundles'."""
    folder, asked = tmp_path_factory.mktemp("pair"), inputs.Asked.from_file(sample_jobs)
    for name, system in (("torch", torch_side), ("bundle", bundle_side)):
        asking.Asking(asked, system, 0.0, lambda message: None).record(folder / name)
    return folder / "torch", folder / "bundle"


def compare(baseline, candidate):
    return comparison.compare(comparison.Comparison.from_recordings(baseline, candidate), "cpu")


def test_bundles_answer_as_their_checkpoints_do_in_every_mode(pair):
    baseline, candidate = map(recording.Recording.from_file, pair)
    found = compare(baseline, candidate)

    assert found.vela.verdicts == {"upstream": "passed", "strict": "passed"}
    assert {job.job: job.mode for job in found.jobs} == MODES
    assert {job.agreement for job in found.jobs} == {1.0}
    assert all(job.compared + job.both_rejected == job.inputs for job in found.jobs)
    assert min(job.compared for job in found.jobs) >= 3
    # what is compared must be worth it: something is cut into windows, rejected, selected and found
    results = [one.result for one in baseline.answers.values() if one.result is not None]
    assert any(len(one.windows or ()) > 1 for one in results if hasattr(one, "windows"))
    assert any(one.spans and one.tokens for one in results if hasattr(one, "spans"))
    assert any(one.selected for one in results if hasattr(one, "selected"))
    assert sum(job.both_rejected for job in found.jobs) > 0


def test_both_sides_state_the_pinned_revision_labels_and_thresholds(sample_jobs, bundle_side, torch_side, table):
    asked = inputs.Asked.from_file(sample_jobs)

    for job in asked.plan.jobs:
        one, other = torch_side.state(job), bundle_side.state(job)
        assert (one.revision, one.labels, one.thresholds) == (job.revision, other.labels, other.thresholds)
        assert bool(one.labels) == (job.kind not in ("embedding", "rerank"))
        assert bool(one.thresholds) == (job.mode == "operating_point")
    assert torch_side.context["precision"] == "float32, sdpa"
    assert len(bundle_side.context["model tiny-pii"]) == len("manifest ") + 64


def test_files_that_are_not_the_pinned_ones_are_named_by_their_digest(tmp_path, checkpoints, sample_jobs, table):
    shutil.copytree(checkpoints["tiny-guard"], tmp_path / "tiny-guard")
    (tmp_path / "tiny-guard" / "special_tokens_map.json").write_text("{}")
    (job,) = inputs.Asked.from_file(sample_jobs, ["tiny-guard"]).plan.jobs

    assert parity_side.side_of(tmp_path, table).state(job).revision.startswith("unpinned, files ")


@pytest.fixture
def sibling(copied, checkpoints):
    """Give a maker of a sample's graph over other weights; digests of a foreign graph's weights are not compared."""

    def make(name, change):
        place = checkpoint.Checkpoint.read(checkpoints[name]).tensors[contract.WEIGHTS_FILE]["classifier.weight"]
        path = copied[name] / contract.WEIGHTS_FILE
        path.chmod(0o644)
        weights = np.memmap(path, np.float32, "r+", offset=place.offset, shape=place.shape)
        weights[:] = change(np.array(weights))
        weights.flush()
        return copied[name] / "model.onnx"

    return make


def broken(weights):
    weights[0, 0] = np.nan
    return weights


def test_a_graph_of_a_sibling_s_weights_under_the_same_labels_flips_them(
    sample_jobs, record_side, bundle_side, sibling, checkpoints, table
):
    asked = inputs.Asked.from_file(sample_jobs, ["tiny-intent"])
    graphs = side_onnx.Graphs({"tiny-intent": sibling("tiny-intent", np.flipud)}, table)

    baseline = record_side(asked, bundle_side, "good")
    candidate = record_side(asked, graphs.side(checkpoints["tiny-intent"].parent), "sibling")
    found = compare(baseline, candidate)

    assert found.vela.verdicts == {"upstream": "failed", "strict": "failed"}
    assert "labels differ where 0 may" in found.vela.jobs[0].verdicts["upstream"].reasons[0]


def test_a_bundle_s_own_graph_passes_as_a_foreign_one(
    sample_jobs, record_side, bundle_side, bundles, checkpoints, table
):
    asked = inputs.Asked.from_file(sample_jobs, ["tiny-pii_truncate", "tiny-embedding"])
    files = {name: bundles[name] / "model.onnx" for name in ("tiny-pii", "tiny-embedding")}

    candidate = record_side(asked, side_onnx.Graphs(files, table).side(checkpoints["tiny-pii"].parent), "foreign")

    assert compare(record_side(asked, bundle_side, "own"), candidate).vela.verdicts["strict"] == "passed"


def test_a_fixed_graph_is_padded_and_masked_and_takes_what_it_holds(
    sample_jobs, record_side, torch_side, bundles, checkpoints, table
):
    asked = inputs.Asked.from_file(sample_jobs, ["tiny-guard"])  # windows of 48 tokens, the last of each shorter
    graphs = side_onnx.Graphs({"tiny-guard": bundles["tiny-guard"] / "portable-b1-s64.onnx"}, table)
    system = graphs.side(checkpoints["tiny-guard"].parent)

    found = compare(record_side(asked, torch_side, "torch"), record_side(asked, system, "fixed"))

    assert found.vela.verdicts["strict"] == "passed"
    wide = jobs.Job("wide", "samples/Vela-tiny-guard", "", "sequence", jobs.Options(8192, "reject"), ("a",))
    with pytest.raises(errors.InvalidRequest, match="expected 2 to 64"):
        system.open(system.state(wide) and wide)


def test_a_graph_of_another_head_is_refused(sample_jobs, bundles, checkpoints, table):
    (job,) = inputs.Asked.from_file(sample_jobs, ["tiny-guard"]).plan.jobs
    system = side_onnx.Graphs({"tiny-guard": bundles["tiny-pii"] / "model.onnx"}, table).side(
        checkpoints["tiny-guard"].parent
    )
    system.state(job)

    with pytest.raises(errors.GraphError, match="as this sequence checkpoint answers"):
        system.open(job)


def test_nan_is_no_answer_and_fails_even_where_both_sides_give_it(
    sample_jobs, record_side, bundle_side, sibling, checkpoints, table
):
    asked = inputs.Asked.from_file(sample_jobs, ["tiny-intent"])
    graphs = side_onnx.Graphs({"tiny-intent": sibling("tiny-intent", broken)}, table)
    wrong = record_side(asked, graphs.side(checkpoints["tiny-intent"].parent), "wrong")
    right = record_side(asked, bundle_side, "right")

    one, both = compare(right, wrong), compare(wrong, wrong)

    assert {answer.error.partition(":")[0] for answer in wrong.answers.values()} == {"invalid_model_output"}
    assert not one.passed
    assert not both.passed
    assert both.jobs[0].both_rejected == 0
    assert {each.reason for each in both.jobs[0].disagreements} == {"error"}


def test_recordings_of_other_inputs_are_refused(sample_jobs, record_side, bundle_side, tmp_path):
    content = json.loads(sample_jobs.read_bytes())
    content = [spec for spec in content if spec["Job"] == "tiny-guard"]
    content[0]["Inputs"][0]["text"] += "!"
    other = tmp_path / "other.jobs.json"
    other.write_text(json.dumps(content))

    one = record_side(inputs.Asked.from_file(sample_jobs, ["tiny-guard"]), bundle_side, "one")
    two = record_side(inputs.Asked.from_file(other), bundle_side, "two")

    with pytest.raises(errors.VerificationError, match="Both sides must answer the same inputs"):
        compare(one, two)


@pytest.mark.parametrize("mode", ["tokens", "grounded", "scores", "rerank"])
def test_a_model_of_another_kind_than_the_job_is_refused(bundle_side, mode):
    job = jobs.Job("j", "tiny-guard", "", mode, jobs.Options(), ("a",))

    with pytest.raises(errors.VerificationError, match="a sequence head over text"):
        bundle_side.state(job)


def test_a_model_that_is_not_there_is_named_with_what_is(bundle_side, torch_side):
    job = jobs.Job("j", "somebody/Vela-1.0-Other", "", "sequence", jobs.Options(), ("a",))

    for system in (bundle_side, torch_side):
        with pytest.raises(errors.VerificationError, match=r"tiny-embedding, .*expected somebody/Vela-1.0-Other"):
            system.state(job)


def test_a_model_is_found_by_the_table_and_else_by_the_last_part_of_its_name(bundle_side):
    for name in ("samples/Vela-tiny-guard", "TINY-GUARD", "somebody/tiny-guard"):
        job = jobs.Job("j", name, "", "sequence", jobs.Options(), ("a",))
        assert bundle_side.state(job).labels


def test_a_store_s_models_answer_as_the_bundles_do(sample_jobs, record_side, bundle_side, store, table):
    asked = inputs.Asked.from_file(sample_jobs, ["tiny-pii", "tiny-pii_truncate"])
    system = side_bundle.BundleSide.of_store(store, table, CPU, "this_engine")

    found = [record_side(asked, one, name) for name, one in (("a", system), ("b", bundle_side))]

    assert [answer.result for answer in found[0].answers.values()] == [
        answer.result for answer in found[1].answers.values()
    ]


def test_a_checkpoint_answers_with_its_own_defaults_too(checkpoints, table):
    ask = parity_side.answering(checkpoint.Checkpoint.read(checkpoints["tiny-pii"]))

    one, empty = ask(["Please call Marta Nowak on 555 0134.", ""])
    assert isinstance(one, answers.TokenAnswer)
    assert one.tokens is None
    assert empty.error.code == "invalid_input"


def test_answers_of_all_sides_have_one_shape(pair):
    def shapes(path):
        found = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
        return {(one["job"], one["id"]): sorted(one.get("result", ())) for one in found}

    assert shapes(pair[0]) == shapes(pair[1])


def test_one_answer_alone_makes_a_reply():
    with pytest.raises(ValueError, match="0 answers"):
        side.reply_of([])
