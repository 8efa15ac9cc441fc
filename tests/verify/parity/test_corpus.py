"""Jobs files: the jobs are upstream's, the inputs are the same each time, and what cannot be asked is refused."""

import json

import pytest

from vela.graphs import errors, model_table
from vela.verify.parity import corpus, jobs


def listed(recipe, models=()):
    """Give the jobs of the models that ship: name, mode, tokens, overflow and window."""
    specs = corpus.make_jobs(corpus.Wanted(recipe, model_table.load_table(), models, most=2))
    return [(one.job, one.mode, one.max_tokens, one.overflow, (one.window_size, one.window_overlap)) for one in specs]


def test_the_cpu_s_jobs_are_the_router_s_defaults():
    assert listed("cpu") == [
        ("domain", "sequence", 512, "truncate", (0, 0)),
        ("guard", "sequence_windows", 8192, "window", (512, 255)),
        ("safety", "sequence", 512, "truncate", (0, 0)),
        ("shield", "sequence", 512, "truncate", (0, 0)),
        ("factcheck", "sequence", 512, "truncate", (0, 0)),
        ("feedback", "sequence", 512, "truncate", (0, 0)),
        ("modality", "sequence", 512, "truncate", (0, 0)),
        ("hazard", "operating_point", 32768, "reject", (0, 0)),
        ("pii", "token_windows", 32768, "window", (512, 255)),
        ("pii_truncate", "tokens", 512, "truncate", (0, 0)),
        ("halu", "grounded", 8192, "truncate", (0, 0)),
        ("embedding", "embedding", 32768, "reject", (0, 0)),
        ("reranker", "rerank", 32768, "reject", (0, 0)),
    ]


def test_amd_s_jobs_reject_what_its_fixed_graphs_do_not_hold():
    found = listed("amd")

    assert [job for job, *_ in found] == [job for job, *_ in listed("cpu") if job != "pii_truncate"]
    assert {(tokens, overflow) for job, _, tokens, overflow, _ in found if job != "hazard"} == {(8192, "reject")}
    assert {mode for job, mode, *_ in found if job in ("guard", "pii", "halu")} == {"sequence", "tokens", "grounded"}
    assert found[[job for job, *_ in found].index("hazard")][1:4] == ("operating_point", 32768, "reject")


def test_models_are_chosen_by_name_and_one_that_is_not_supported_is_refused():
    assert [job for job, *_ in listed("cpu", ("shield", "PII", "shield"))] == ["shield", "pii", "pii_truncate"]
    with pytest.raises(errors.CheckpointError, match="Shield"):
        listed("cpu", ("shield2",))
    with pytest.raises(errors.CheckpointError, match="not supported yet"):
        listed("cpu", ("Qwen3-Embedding-0.6B",))


def test_long_documents_and_triples_are_made_of_the_corpus(whole_corpus):
    made = corpus.make_inputs()

    texts = {one["id"]: one["text"] for one in made["text"]}
    longest = texts["long-384"].split("\n")
    triples = [one for one in made["grounded"] if one["id"].startswith("made-")]
    assert [name for name in texts if name.startswith("long-")] == [
        f"long-{count:03d}" for count in corpus.LONG_PROMPTS
    ]
    assert len(longest) >= 384
    assert len(triples) == 64
    assert [one["id"] for one in triples[-4:]] == [f"made-long-{index}" for index in range(4)]
    assert min(len(one["context"]) for one in triples[-4:]) > max(len(one["context"]) for one in triples[:-4])
    assert {*made["pair"][0]} == {"id", "query", "documents"}


def test_inputs_are_the_same_each_time():
    assert corpus.make_inputs() == corpus.make_inputs()


@pytest.mark.parametrize(("count", "most", "kept"), [(9, 3, [0, 4, 8]), (4, 9, [0, 1, 2, 3]), (710, 2, [0, 709])])
def test_thinning_keeps_the_first_and_the_last(count, most, kept):
    assert corpus.thin(range(count), most) == kept


def test_a_user_s_texts_are_asked_after_the_project_s_and_may_not_share_an_id(tmp_path, table):
    files = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    files[0].write_text('{"id": "u1", "text": "one"}\n')
    files[1].write_text('{"id": "u2", "text": "two"}\n')

    texts = corpus.make_inputs(files)["text"]
    files[1].write_text('{"id": "u1", "text": "two"}\n')

    assert [one for one in texts if one["id"].startswith("u")] == [
        {"id": "u1", "text": "one"},
        {"id": "u2", "text": "two"},
    ]
    with pytest.raises(errors.VerificationError, match="'u1' twice"):
        corpus.make_inputs(files)


def test_a_file_is_read_as_a_plan_in_upstream_s_spelling(tmp_path, table):
    path = tmp_path / "a.jobs.json"

    sha256 = corpus.write_jobs(corpus.make_jobs(corpus.Wanted("cpu", table, ("tiny-pii",), most=3)), path)

    plan = jobs.Plan.from_file(path)
    (spec, _) = json.loads(path.read_bytes())
    assert plan.inputs_sha256 == sha256
    assert [(job.job, job.options) for job in plan.jobs] == [
        ("tiny-pii", jobs.Options(512, "window", (48, 23))),
        ("tiny-pii_truncate", jobs.Options(48, "truncate")),
    ]
    assert {"Job", "Repo", "Revision", "Mode", "MaxTokens", "Overflow", "WindowSize", "WindowOverlap", "Inputs"} == {
        *spec
    }
    assert [*tmp_path.iterdir()] == [path]


def test_a_folder_that_is_not_there_and_more_than_a_reader_takes_are_refused(tmp_path, table, monkeypatch):
    specs = corpus.make_jobs(corpus.Wanted("cpu", table, ("tiny-pii",), most=3))

    with pytest.raises(errors.VerificationError, match="Make it first"):
        corpus.write_jobs(specs, tmp_path / "no" / "a.jobs.json")
    monkeypatch.setattr(jobs, "JOBS_LIMIT_BYTES", 1000)
    with pytest.raises(errors.VerificationError, match="bytes of inputs"):
        corpus.write_jobs(specs, tmp_path / "a.jobs.json")


def test_a_table_without_models_is_not_compared():
    empty = model_table.ModelTable(model_table.SCHEMA_VERSION, "", ())

    with pytest.raises(errors.NothingCompared):
        corpus.make_jobs(corpus.Wanted("cpu", empty))
