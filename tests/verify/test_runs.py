"""Which graph is asked what, and what lies under the mask."""

from pathlib import Path

import msgspec
import pytest

from vela.graphs import contract, heads, manifest
from vela.serve import tokenization
from vela.verify import cases, runs

TOKENIZER = Path(__file__).resolve().parents[2] / "golden" / "checkpoints" / "tiny-intent" / "tokenizer.json"
TEXT = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 512, "reject")


@pytest.fixture(scope="module")
def made(thin_corpus) -> list[cases.Case]:
    tokenizer = tokenization.Tokenizer.from_file(TOKENIZER, pad_id=0)
    return cases.make_cases(TEXT, tokenizer, thin_corpus(), half_window=16, max_tokens=512)


def graph(sequence: int | None, batch: int | None = 1) -> manifest.Graph:
    inputs = contract.graph_inputs(batch or "batch", sequence or "sequence")
    outputs = (contract.TensorSpec("logits", "float32", (batch or "batch", 2)),)
    name = f"g{sequence}-{batch}"
    return manifest.Graph(
        name, name, "0" * 64, 1, "portable", "fp32", "reference", 18, "default", 4, inputs, outputs, {}, ()
    )


def test_a_bucket_gets_the_texts_that_serve_would_give_it_and_probes_of_every_length(made):
    ladder = [graph(64), graph(128), graph(256)]

    planned = runs.plan_runs(ladder[1], ladder, made, half_window=16, limit=8192).all

    own = {case.id for case in made if 64 < case.tokens <= 128}
    asked = {run.case.id for run in planned}
    assert own <= asked
    assert any(run.case.tokens <= 3 for run in planned)
    assert all(run.case.tokens <= 128 for run in planned)
    assert len(asked - own) <= runs.PROBE_COUNT


def test_each_text_goes_to_exactly_one_bucket_apart_from_probes(made):
    ladder = [graph(64), graph(128), graph(512)]

    asked = [
        run.case.id
        for entry in ladder
        for run in runs.plan_runs(entry, ladder, made, half_window=16, limit=8192).all
        if run.case.tokens > max((other.sequence for other in ladder if other.sequence < entry.sequence), default=0)
    ]

    assert sorted(set(asked)) == sorted({case.id for case in made})


def test_a_batched_graph_is_always_filled(made):
    entry = graph(64, batch=4)

    planned = runs.plan_runs(entry, [entry], made, half_window=16, limit=8192).all

    assert {len(run.companions) for run in planned} == {3}


def test_a_dynamic_graph_is_asked_alone_padded_and_batched(made):
    entry = graph(None, batch=None)

    planned = runs.plan_runs(entry, [entry], made, half_window=16, limit=8192).all

    assert sum(run.pad_to is None and not run.companions for run in planned) == len(made)
    assert any(run.pad_to is not None and run.pad_to - run.case.tokens > 32 for run in planned)
    assert any(len(run.companions) == 2 for run in planned)


def test_a_graph_without_a_mask_is_asked_alone_and_in_batches_of_equal_length(made):
    masked = graph(None, batch=None)
    entry = msgspec.structs.replace(masked, inputs=contract.graph_inputs("batch", "sequence", takes_mask=False))

    planned = runs.plan_runs(entry, [entry], made, half_window=16, limit=8192).all

    assert {run.case.id for run in planned if not run.companions} == {case.id for case in made}
    assert all(run.pad_to is None for run in planned)
    batched = [run for run in planned if run.companions]
    assert batched
    assert all({other.tokens for other in run.companions} == {run.case.tokens} for run in batched)
    assert all(run.case not in run.companions for run in batched)


def test_the_digest_of_a_plan_follows_its_ids(made):
    first, second = runs.Run(made[0]), runs.Run(made[1])

    assert runs.digest_of_runs([first]) == runs.digest_of_runs([first])
    assert runs.digest_of_runs([first]) != runs.digest_of_runs([second])
    assert runs.digest_of_runs([first]) != runs.digest_of_runs([runs.Run(made[0], pad_to=99)])


def test_no_row_is_padded_beyond_what_the_encoder_takes(made):
    entry = graph(None, batch=None)

    planned = runs.plan_runs(entry, [entry], made, half_window=16, limit=520).all

    assert max(run.pad_to for run in planned if run.pad_to) == 520
