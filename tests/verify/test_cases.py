from pathlib import Path

import msgspec
import pytest

from vela.graphs import contract, errors, heads, manifest
from vela.serve import tokenization
from vela.verify import cases, rows

TOKENIZER = Path(__file__).resolve().parents[2] / "golden" / "checkpoints" / "tiny-intent" / "tokenizer.json"
TEXT = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 512, "reject")
GROUNDED = heads.Head("default", "grounded", heads.GroundedDecoder(("no", "yes"), 1, 0.5, "0" * 64), 512, "reject")


@pytest.fixture(scope="module")
def tokenizer() -> tokenization.Tokenizer:
    return tokenization.Tokenizer.from_file(TOKENIZER, pad_id=0)


@pytest.fixture(scope="module")
def made(tokenizer: tokenization.Tokenizer) -> list[cases.Case]:
    return cases.make_cases(TEXT, tokenizer, rows.read_corpus(), half_window=16, max_tokens=512)


def graph(sequence: int | None, batch: int | None = 1) -> manifest.Graph:
    inputs = contract.graph_inputs(batch or "batch", sequence or "sequence")
    outputs = (contract.TensorSpec("logits", "float32", (batch or "batch", 2)),)
    name = f"g{sequence}-{batch}"
    return manifest.Graph(
        name, name, "0" * 64, 1, "portable", "fp32", "reference", 18, "default", 4, inputs, outputs, {}, ()
    )


def test_the_corpus_has_hundreds_of_texts_with_unique_ids():
    corpus = rows.read_corpus()

    assert len(corpus.texts) >= 600
    assert len({row.id for row in corpus.texts}) == len(corpus.texts)
    assert len(corpus.grounded) >= 60
    assert len(corpus.pairs) >= 40


def test_every_length_that_matters_is_made_exactly(made):
    lengths = {case.tokens for case in made if case.id.startswith("made-")}

    assert {2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512} <= lengths
    assert all(case.tokens == int(case.id.removeprefix("made-")) for case in made if case.id.startswith("made-"))


def test_no_case_is_longer_than_asked(made):
    assert max(case.tokens for case in made) == 512


def test_offsets_point_at_content_tokens(made):
    assert all(case.first + len(case.offsets) < case.tokens for case in made)
    assert all(len(case.offsets) == case.tokens - 2 for case in made)


def test_grounded_heads_get_framed_triples(tokenizer):
    made = cases.make_cases(GROUNDED, tokenizer, rows.read_corpus(), half_window=16, max_tokens=512)

    assert len(made) >= 40
    assert all(case.first > 3 for case in made)


def test_a_bucket_gets_the_texts_that_serve_would_give_it_and_probes_of_every_length(made):
    ladder = [graph(64), graph(128), graph(256)]

    runs = cases.plan_runs(ladder[1], ladder, made, half_window=16, limit=8192)

    own = {case.id for case in made if 64 < case.tokens <= 128}
    asked = {run.case.id for run in runs}
    assert own <= asked
    assert any(run.case.tokens <= 3 for run in runs)
    assert all(run.case.tokens <= 128 for run in runs)
    assert len(asked - own) <= cases.PROBE_COUNT


def test_each_text_goes_to_exactly_one_bucket_apart_from_probes(made):
    ladder = [graph(64), graph(128), graph(512)]

    asked = [
        run.case.id
        for entry in ladder
        for run in cases.plan_runs(entry, ladder, made, half_window=16, limit=8192)
        if run.case.tokens > max((other.sequence for other in ladder if other.sequence < entry.sequence), default=0)
    ]

    assert sorted(set(asked)) == sorted({case.id for case in made})


def test_a_batched_graph_is_always_filled(made):
    entry = graph(64, batch=4)

    runs = cases.plan_runs(entry, [entry], made, half_window=16, limit=8192)

    assert {len(run.companions) for run in runs} == {3}


def test_a_dynamic_graph_is_asked_alone_padded_and_batched(made):
    entry = graph(None, batch=None)

    runs = cases.plan_runs(entry, [entry], made, half_window=16, limit=8192)

    assert sum(run.pad_to is None and not run.companions for run in runs) == len(made)
    assert any(run.pad_to is not None and run.pad_to - run.case.tokens > 32 for run in runs)
    assert any(len(run.companions) == 2 for run in runs)


def test_a_graph_without_a_mask_is_asked_alone_and_in_batches_of_equal_length(made):
    masked = graph(None, batch=None)
    entry = msgspec.structs.replace(masked, inputs=contract.graph_inputs("batch", "sequence", takes_mask=False))

    runs = cases.plan_runs(entry, [entry], made, half_window=16, limit=8192)

    assert {run.case.id for run in runs if not run.companions} == {case.id for case in made}
    assert all(run.pad_to is None for run in runs)
    batched = [run for run in runs if run.companions]
    assert batched
    assert all({other.tokens for other in run.companions} == {run.case.tokens} for run in batched)
    assert all(run.case not in run.companions for run in batched)


def test_nothing_that_fits_is_an_error_and_not_an_empty_pass(tokenizer):
    head = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 512, "reject")

    with pytest.raises(errors.NothingCompared):
        cases.make_cases(head, tokenizer, rows.Corpus((), (), (), "0" * 64), half_window=16, max_tokens=1)


def test_the_digest_of_a_plan_follows_its_ids(made):
    first, second = cases.Run(made[0]), cases.Run(made[1])

    assert cases.digest_of_runs([first]) == cases.digest_of_runs([first])
    assert cases.digest_of_runs([first]) != cases.digest_of_runs([second])
    assert cases.digest_of_runs([first]) != cases.digest_of_runs([cases.Run(made[0], pad_to=99)])


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"id": "p001", "text": "twice"}', b'{"id": 1, "text": "x"}', b"nonsense"]
)
def test_a_user_corpus_that_cannot_be_trusted_is_refused(tmp_path, content):
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    if content == b"":
        assert rows.read_corpus(path).texts == rows.read_corpus().texts
        return

    with pytest.raises(errors.VerificationError, match=r"mine\.jsonl"):
        rows.read_corpus(path)


def test_user_rows_are_judged_as_well(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"id": "mine-1", "text": "hello", "label": "ignored"}\n\n', encoding="utf-8")

    corpus = rows.read_corpus(path)

    assert corpus.texts[-1] == rows.TextRow("mine-1", "hello")
    assert corpus.sha256 != rows.read_corpus().sha256


def test_rerankers_get_every_document_under_its_query_and_long_documents_of_each_length(tokenizer):
    head = heads.Head("default", "pair", heads.RerankDecoder((4,), (8,)), 512, "reject")
    corpus = rows.read_corpus()

    made = cases.make_cases(head, tokenizer, corpus, half_window=16, max_tokens=512)

    documents = {row.id: len(row.documents) for row in corpus.pairs}
    counts = {row_id: sum(case.query == row_id for case in made) for row_id in documents}
    assert counts == documents
    assert {64, 65, 128, 129, 512} <= {case.tokens for case in made if case.query == "made"}
    assert all(case.tokens == int(case.id.removeprefix("made-")) for case in made if case.query == "made")


def test_no_row_is_padded_beyond_what_the_encoder_takes(made):
    entry = graph(None, batch=None)

    runs = cases.plan_runs(entry, [entry], made, half_window=16, limit=520)

    assert max(run.pad_to for run in runs if run.pad_to) == 520
