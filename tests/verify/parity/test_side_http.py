"""The side of a server, against one that says what a test tells it: good answers, refusals and nonsense."""

import json

import pytest

from vela.graphs import errors, model_table
from vela.verify.parity import connection, inputs, jobs, side_http

REPOSITORY = "vllm-sr/Vela-1.0-Encoder-307M-Shield"
REFUSAL = {"error": {"code": "invalid_request", "message": "found max_length_exceeded (9000 tokens)"}}
TEXT = inputs.Given("a", text="é")


def job(mode="sequence", *, model=REPOSITORY, **options):
    asked = jobs.Options(**({"max_tokens": 512, "overflow": "truncate"} | options))
    return jobs.Job("j", model, "stated", mode, asked, ("a",))


def ask(system, asked=None, given=TEXT):
    asked = asked or job()
    return system.open(asked).ask(given).read()


@pytest.mark.parametrize(
    ("asked", "given", "path", "body", "answer"),
    [
        (
            job("token_windows", max_tokens=8192, overflow="window", window=(512, 255)),
            TEXT,
            "/v1/classify",
            {
                "input": ["é"],
                "options": {
                    "overflow": "window",
                    "max_tokens": 8192,
                    "window": {"tokens": 512, "overlap": 255},
                    "return_tokens": True,
                },
            },
            {"results": [{"spans": []}]},
        ),
        (
            job("grounded"),
            inputs.Given("a", context="c", question="q", answer="w"),
            "/v1/classify",
            {
                "input": [{"context": "c", "question": "q", "answer": "w"}],
                "options": {"overflow": "truncate", "max_tokens": 512, "return_tokens": True},
            },
            {"results": [{"spans": []}]},
        ),
        (job("operating_point"), TEXT, "/v1/classify", {"input": ["é"], "options": {}}, {"results": [{"scores": [0]}]}),
        (
            job("embedding"),
            TEXT,
            "/v1/embeddings",
            {"input": ["é"], "options": {"overflow": "truncate", "max_tokens": 512}},
            {"data": [{"embedding": [1.0]}]},
        ),
        (
            job("rerank", overflow="reject"),
            inputs.Given("a", query="q", documents=("d", "e")),
            "/v1/rerank",
            {"query": "q", "documents": ["d", "e"], "options": {"max_tokens": 512}},
            {"model": "m", "results": [{"index": 0, "relevance_score": 0.5, "logit": 0.0}]},
        ),
    ],
)
def test_each_mode_has_its_route_and_body(fake, system, asked, given, path, body, answer):
    fake.say(answer)

    reply = ask(system, asked, given)

    assert fake.asked == [(path, {"model": "shield", **body})]
    assert reply.result == answer.get("results", answer.get("data"))[0] or reply.result == {
        "results": answer["results"]
    }


def test_an_error_that_is_null_is_none(fake, system):
    fake.say({"results": [{"probabilities": [0.5, 0.5], "error": None}]})

    assert system.open(job()).ask(TEXT).is_answered
    assert ask(system).error is None


@pytest.mark.parametrize("code", ["server_error", "EngineDead", "invalid_request"])
def test_a_server_that_failed_refused_nothing_whatever_it_calls_it(fake, system, code):
    fake.say({"error": {"code": code, "message": "CUDA error"}}, 500)

    assert ask(system).error.code == "internal_error"
    assert ask(system).error.message == f"{code}: CUDA error"


@pytest.mark.parametrize("url", ["http://a..b:80", f"http://{'a' * 64}:80", "http://127.0.0.1:80/é"])
def test_an_address_that_no_name_server_takes_is_refused(url):
    with pytest.raises(errors.VerificationError, match=r"--url"):
        connection.Server(url, {})


@pytest.mark.parametrize("status", [400, 413])
def test_what_a_server_refuses_of_an_input_is_an_answer_with_its_code(fake, system, status):
    fake.say(REFUSAL, status)

    assert ask(system).error.code == "invalid_request"


def test_an_input_s_error_among_results_is_an_answer_with_its_code(fake, system):
    fake.say({"results": [{"index": 0, "error": {"code": "scan_budget_exceeded", "message": "long"}}]})

    assert ask(system).error.code == "scan_budget_exceeded"


@pytest.mark.parametrize("status", [301, 401, 404, 422, 429, 502, 503])
def test_what_a_server_refuses_of_how_it_is_asked_ends_the_run(fake, system, status):
    fake.say({"error": {"code": "not_ready", "message": "loading\x1b[2J"}}, status)

    with pytest.raises(errors.EngineError, match=f"status {status}: not_ready: loading \\[2J"):
        ask(system)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        {"results": []},
        {"results": [{"probabilities": [0.5]}] * 2},
        {"results": [{"scores": [0.5]}]},
        {"results": [{"probabilities": ["0.5"]}]},
        {"results": 7},
        {"results": [7]},
        {"results": [{"error": 7}]},
        b'{"results": [{"probabilities": [NaN], "label": "\\ud800"}]}',
    ],
)
def test_an_answer_of_another_form_ends_the_run(fake, system, body):
    fake.say(body)

    with pytest.raises(errors.EngineError, match="an answer of another form"):
        ask(system)


def test_a_refusal_without_a_code_ends_the_run(fake, system):
    fake.say(b"<html>", 500)

    with pytest.raises(errors.EngineError, match="status 500 without an error's code"):
        ask(system)


def test_nan_is_an_answer_that_a_comparison_fails(fake, system):
    fake.say(b'{"results": [{"label": "safe", "probabilities": [NaN, 0.5]}]}')

    reply = ask(system)

    assert reply.result["probabilities"][0] != reply.result["probabilities"][0]


def test_the_card_states_labels_revision_and_engine(fake, system):
    stated = system.state(job())

    assert (stated.labels, stated.revision) == (("safe", "unsafe"), "r1")
    assert system.context == {"model shield": f"onnxruntime 1.32.0, cpu, manifest {'m' * 64}"}
    assert system.name == fake.url


@pytest.mark.parametrize("card", [{"id": "SHIELD"}, {"id": REPOSITORY}, {"id": "other", "repo": REPOSITORY}])
def test_a_model_is_found_by_its_names_and_its_repository(fake, system, card):
    fake.models = (200, json.dumps({"data": [{"id": "guard"}, card]}).encode())

    ask(system)

    assert fake.asked[0][1]["model"] == card["id"]


def test_a_server_without_the_model_is_refused_with_what_it_has(fake, system):
    fake.models = (200, json.dumps({"data": [{"id": "guard"}]}).encode())

    with pytest.raises(errors.VerificationError, match=r"found guard; expected .*shield"):
        system.state(job())


@pytest.mark.parametrize("models", [(404, b"{}"), (200, b"<html>"), (200, b'{"data": [{"name": 1}]}')])
def test_a_server_without_a_list_is_asked_for_the_model_by_its_short_name(fake, system, models):
    fake.models = models

    assert system.state(job()).revision == "unstated"
    ask(system)
    assert fake.asked[0][1]["model"] == "shield"


def test_a_server_that_wants_a_key_gets_the_one_that_was_given(fake):
    system = side_http.HttpSide(connection.Server(fake.url, {"authorization": "Bearer k"}), model_table.load_table())
    system.state(job())
    fake.models = (401, b'{"error": {"code": "unauthorized", "message": "no key"}}')
    system.cards = None

    with pytest.raises(errors.EngineError, match="status 401: unauthorized"):
        system.state(job())

    assert fake.keys == ["Bearer k"] * 2
    system.close()


def test_errors_are_told_from_answers_without_reading_them(fake, system):
    quoting = {"results": [{"spans": [{"label": "A", "start": 0, "end": 8, "text": '"error":', "probability": 1.0}]}]}
    found = []
    for body, status in ((quoting, 200), ({"results": [REFUSAL]}, 200), (REFUSAL, 400)):
        fake.say(body, status)
        found.append(system.open(job("tokens")).ask(TEXT).is_answered)

    assert found == [True, False, False]
