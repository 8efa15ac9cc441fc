"""Pinned files from a Hub: what is right is kept, what is wrong is not, and what broke off is gone on from."""

import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import hub_case
import hub_server
import pytest
from huggingface_hub import constants, try_to_load_from_cache

from vela.export import hub_cache
from vela.graphs import errors

WEIGHTS = hub_case.WEIGHTS
BEFORE = [(name, "") for name in hub_case.NAMES if name != WEIGHTS]


@pytest.fixture
def case(tmp_path: Path) -> Iterator[hub_case.Case]:
    with hub_case.opened(tmp_path) as made:
        yield made


def test_files_come_with_their_pinned_bytes_and_huggingface_hub_finds_them_too(case: hub_case.Case) -> None:
    case.fetch()

    assert [name for name, _ in case.server.asked] == list(hub_case.NAMES)
    assert case.said == ["config.json: 110 bytes", "tokenizer.json: 140 bytes", "model.safetensors: 1,700,000 bytes"]
    for name in hub_case.NAMES:
        found = try_to_load_from_cache(case.entry.repository, name, cache_dir=case.cache, revision=hub_case.REVISION)
        assert Path(str(found)).read_bytes() == hub_case.content_of(name)


def test_a_large_file_comes_from_another_host_which_is_not_given_the_token(
    case: hub_case.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")

    case.fetch()

    assert case.server.storage != case.server.address
    assert case.server.credentials == [("hub", "Bearer hf_secret")] * 3 + [("storage", "")]


def test_what_the_cache_holds_is_not_asked_for_again(case: hub_case.Case) -> None:
    case.fetch()
    case.server.asked.clear()

    case.fetch()

    assert case.server.asked == []


@pytest.mark.parametrize("content", [b"damaged", hub_case.content_of(WEIGHTS)[:-1], b""])
def test_a_file_that_was_damaged_in_the_cache_is_fetched_again_and_no_other(
    case: hub_case.Case, content: bytes
) -> None:
    folder = case.fetch()
    (folder / WEIGHTS).resolve().write_bytes(content)
    case.server.asked.clear()

    case.fetch()

    assert case.server.asked == [(WEIGHTS, "")]
    assert case.leftovers() == []


def test_a_content_that_has_no_name_yet_is_given_one_even_offline(
    case: hub_case.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case.fetch() / WEIGHTS).unlink()
    case.server.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    case.fetch()

    assert case.server.asked == []


def test_a_wrong_byte_is_thrown_away_and_not_gone_on_from(case: hub_case.Case) -> None:
    case.server.faults[WEIGHTS] = ["wrong byte"]
    with pytest.raises(errors.CheckpointError, match="as pinned"):
        case.fetch()
    case.server.asked.clear()

    case.fetch()

    assert case.server.asked == [(WEIGHTS, "")]


@pytest.mark.parametrize("fault", ["breaks off", "truncated", "stalls"])
def test_a_transfer_that_breaks_off_goes_on_where_it_was(case: hub_case.Case, fault: str) -> None:
    case.server.faults[WEIGHTS] = [fault]

    case.fetch()

    assert case.server.asked == [*BEFORE, (WEIGHTS, ""), (WEIGHTS, "bytes=850000-")]
    assert case.said[-2:] == [
        "model.safetensors: broken off at 850,000 bytes; going on",
        "model.safetensors: 1,700,000 bytes, from 850,000 on",
    ]
    assert case.waited == []


def test_a_hub_without_ranges_sends_the_file_from_its_beginning(case: hub_case.Case) -> None:
    case.server.faults[WEIGHTS] = ["breaks off", "no ranges"]

    case.fetch()

    assert case.server.asked == [*BEFORE, (WEIGHTS, ""), (WEIGHTS, "bytes=850000-")]
    assert case.said[-1] == "model.safetensors: 1,700,000 bytes"


def test_a_line_that_only_drips_has_broken_too(case: hub_case.Case) -> None:
    case.server.faults[WEIGHTS] = ["breaks off", "drips", "drips"]

    case.fetch()

    begun = [int(asked.removeprefix("bytes=").removesuffix("-")) for name, asked in case.server.asked[-2:]]
    assert 0 < begun[0] - 1_275_000 < hub_server.DROPS / 2  # three quarters, and the drops
    assert 0 < begun[1] - 1_487_500 < hub_server.DROPS / 2


@pytest.mark.parametrize("fault", ["breaks off", "truncated"])
def test_a_line_that_breaks_again_and_again_is_gone_on_from_by_the_next_run(case: hub_case.Case, fault: str) -> None:
    case.server.faults[WEIGHTS] = [f"{fault} always"]
    with pytest.raises(errors.CheckpointError, match=r"broke off after 1,593,750 bytes .* Run again: it goes on from"):
        case.fetch()
    case.server.faults.clear()
    case.server.asked.clear()

    case.fetch()

    assert case.server.asked == [(WEIGHTS, "bytes=1593750-")]
    assert case.leftovers() == []


def test_a_process_that_ended_before_it_compared_leaves_nothing_to_fetch(case: hub_case.Case) -> None:
    place = hub_cache.Place.of(case.cache, case.entry)
    with place.held(case.entry.files[WEIGHTS], lambda: None) as part:
        part.write_bytes(hub_case.content_of(WEIGHTS))

    case.fetch()

    assert case.server.asked == [*BEFORE, (WEIGHTS, "bytes=1700000-")]


def test_a_beginning_that_is_not_the_file_s_is_dropped_and_the_file_fetched_whole(case: hub_case.Case) -> None:
    case.server.faults[WEIGHTS] = ["breaks off always"]
    with pytest.raises(errors.CheckpointError, match="broke off"):
        case.fetch()
    (part,) = case.cache.rglob("*.incomplete")
    part.write_bytes(b"another beginning")
    case.server.faults.clear()
    case.server.asked.clear()

    case.fetch()

    assert case.server.asked == [(WEIGHTS, "bytes=17-"), (WEIGHTS, "")]
    assert case.leftovers() == []


@pytest.mark.parametrize("fault", ["length not stated", "compressed"])
@pytest.mark.parametrize("name", ["tokenizer.json", WEIGHTS])
def test_an_answer_whose_length_is_not_the_file_s_is_taken_and_compared(
    case: hub_case.Case, name: str, fault: str
) -> None:
    case.server.faults[name] = [fault]

    case.fetch()

    assert [asked for asked in case.server.asked if asked[0] == name] == [(name, "")]


@pytest.mark.parametrize(
    ("fault", "seconds"), [("429", 3.0), ("429 of the Hub", 8.0), ("503", 5.0), ("500", 1.0), ("closes", 1.0)]
)
def test_a_hub_that_asks_to_wait_a_little_is_waited_for(case: hub_case.Case, fault: str, seconds: float) -> None:
    case.server.faults["config.json"] = [fault, "429"]

    case.fetch()

    assert case.waited == [seconds, 3.0]


def test_a_hub_that_does_not_say_how_long_is_asked_less_and_less_often(case: hub_case.Case) -> None:
    case.server.faults["config.json"] = ["500", "closes", "500"]

    case.fetch()

    assert case.waited == [1.0, 2.0, 4.0]


def test_a_file_that_another_process_fetches_is_waited_for_and_not_fetched_twice(case: hub_case.Case) -> None:
    place, sha256, told = hub_cache.Place.of(case.cache, case.entry), case.entry.files[WEIGHTS], threading.Event()
    waiting = f"{WEIGHTS}: another process fetches it, waiting"
    fetching = threading.Thread(
        target=lambda: case.client.fetch(case.entry, lambda said: told.set() if said == waiting else None)
    )

    with place.held(sha256, lambda: None) as part:
        fetching.start()
        assert told.wait(10)
        fetching.join(0.2)
        assert fetching.is_alive()
        part.write_bytes(hub_case.content_of(WEIGHTS))
        place.keep(sha256)
    fetching.join(10)

    assert WEIGHTS not in {name for name, _ in case.server.asked}
    case.fetch()


def test_offline_takes_what_is_right_in_the_cache_and_names_what_is_not(
    case: hub_case.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(errors.CheckpointError, match=r"config\.json: found no such file; .* HF_HUB_OFFLINE is set"):
        case.fetch()
    assert not case.cache.exists()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    folder = case.fetch()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    case.server.asked.clear()

    assert case.fetch() == folder

    (folder / WEIGHTS).resolve().write_bytes(b"damaged")
    with pytest.raises(errors.CheckpointError, match=r"model\.safetensors: found sha256 [0-9a-f]{64}; expected"):
        case.fetch()
    assert case.server.asked == []


@pytest.mark.parametrize("blocked", ["models--someone--Tiny-Shield", ".locks", f"snapshots/{WEIGHTS}"])
def test_a_cache_that_cannot_be_written_is_said(case: hub_case.Case, blocked: str) -> None:
    if blocked.startswith("snapshots"):
        (hub_cache.Place.of(case.cache, case.entry).snapshot / WEIGHTS).mkdir(parents=True)
    else:
        case.cache.mkdir()
        (case.cache / blocked).write_text("a file where a folder belongs")

    with pytest.raises(errors.CheckpointError, match="found a cache that cannot be used") as raised:
        case.fetch()

    assert isinstance(raised.value.__cause__, OSError)


def test_a_disk_that_is_full_is_said_and_what_fitted_is_gone_on_from(case: hub_case.Case) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(errors.CheckpointError, match=r"a cache that cannot be used .* Make room"):
            case.fetch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not any(path.name == WEIGHTS for path in case.cache.rglob("*"))
    case.server.asked.clear()

    case.fetch()

    assert case.server.asked == [(WEIGHTS, "bytes=1000000-")]
