"""A Hub that fails in every way: each a clear error, nothing that looks finished is left, and the next run succeeds."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import hub_case
import msgspec
import pytest

from vela.export import hub_failures
from vela.graphs import errors, manifest

WEIGHTS = hub_case.WEIGHTS


@pytest.fixture
def case(tmp_path: Path) -> Iterator[hub_case.Case]:
    with hub_case.opened(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("fault", "words", "fix"),
    [
        ("wrong byte", r"found sha256 [0-9a-f]{64}; expected sha256 [0-9a-f]{64}, as pinned", "thrown away"),
        ("longer", "more than the 1,700,000 bytes that were promised", "later"),
        ("huge", "1,125,899,906,842,624 bytes promised, more than any file", "later"),
        ("redirect loop", "found redirections without an end", "HF_ENDPOINT"),
        ("no revision", f"found no revision {hub_case.REVISION} of someone/Tiny-Shield", "history"),
        ("no repository", r"found no repository that this account may read \(401\)", "HF_TOKEN"),
        ("no file", "found no such file in the repository", "history"),
        ("gated", r"found a repository that asks for consent \(403\)", "Accept its terms"),
        ("401", r"found no repository that this account may read \(401\)", "HF_TOKEN"),
        ("403", r"found an account that may not read it \(403\)", "HF_TOKEN"),
        ("404", r"found no such file at that address \(404\)", "mirror"),
        ("304", "found a Hub that answers 304", "later"),
        ("418", "found a Hub that answers 418", "later"),
        ("500", "found a Hub that answers 500", "later"),
        ("503", r"found a Hub that asks to wait 5 s \(503\)", "Run again after that"),
        ("429", r"found a Hub that asks to wait 3 s \(429\)", "hf auth login"),
        ("429 for long", r"found a Hub that asks to wait 3600 s \(429\)", "hf auth login"),
        ("429 without end", r"found a Hub that asks to wait \S+ s \(429\)", "hf auth login"),
        ("closes", "found a transfer that broke off after 0 bytes", "Run again"),
        ("hangs", r"found a transfer that broke off after 0 bytes \(timed out\)", "Run again"),
    ],
)
def test_each_failure_is_said_and_the_next_run_succeeds(case: hub_case.Case, fault: str, words: str, fix: str) -> None:
    case.server.faults[WEIGHTS] = [f"{fault} always"]

    with pytest.raises(errors.CheckpointError, match=words) as raised:
        case.fetch()

    assert raised.value.where == f"someone/Tiny-Shield at {hub_case.REVISION[:12]}, {WEIGHTS}"
    assert fix in raised.value.fix
    assert raised.value.__cause__ is not None or fault == "wrong byte"
    assert not any(path.name == WEIGHTS for path in case.cache.rglob("*"))  # nothing bears its name
    assert case.leftovers() == []
    assert sum(case.waited) <= hub_failures.LONGEST_WAIT_S

    case.server.faults.clear()
    case.server.asked.clear()
    case.fetch()
    assert case.server.asked == [(WEIGHTS, "")]  # what was right was not fetched again


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:9", r"found no connection to http://127\.0\.0\.1:9 \(.*refused\); .* HF_ENDPOINT"),
        ("gopher://127.0.0.1", r"found no way to the Hub \(.*gopher"),
        ("http://127.0.0.1:port", "found what no request can be made of"),
    ],
)
def test_an_address_that_leads_nowhere_is_said_at_once(case: hub_case.Case, endpoint: str, words: str) -> None:
    with pytest.raises(errors.CheckpointError, match=words):
        case.fetch(endpoint)

    assert case.waited == []


@pytest.mark.parametrize("repository", ["some one/x", "a--b/c", "../models"])
def test_a_repository_that_no_hub_has_is_said_before_anything_is_asked(case: hub_case.Case, repository: str) -> None:
    case.entry = msgspec.structs.replace(case.entry, repository=repository)

    with pytest.raises(errors.CheckpointError, match=r"no request can be made of .* Look at the table's repository"):
        case.fetch()

    assert case.server.asked == []


@pytest.mark.parametrize("token", ["hf_\x0bsecret", "hf_s\u00e9cret"])
def test_a_token_that_no_request_can_hold_is_said_without_being_shown(
    case: hub_case.Case, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)

    with pytest.raises(errors.CheckpointError, match="HF_TOKEN") as raised:
        case.fetch()

    assert "cret" not in str(raised.value)
    assert case.server.asked == []


def test_a_proxy_that_refuses_is_said(case: hub_case.Case) -> None:
    found = hub_failures.refused(httpx2.ProxyError("403 Forbidden"), case.entry, "config.json")

    assert str(found).startswith("config.json: found no way to the Hub (403 Forbidden); expected the pinned file. Look")


def test_the_cases_of_this_file_are_models_as_the_table_has_them(case: hub_case.Case) -> None:
    assert manifest.is_name(case.entry.name)
    assert case.table.find("someone/tiny-shield") == case.entry
