"""Pinned files from a Hub that fails in every way: each a clear error, nothing wrong kept, and the next run goes on."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import hub_server
import msgspec
import pytest
from huggingface_hub import constants, try_to_load_from_cache

from vela.export import hub, sources
from vela.graphs import digests, errors, model_table

NAMES = ("config.json", "model.safetensors", "tokenizer.json")
WEIGHTS = "model.safetensors"
REVISION = "0123456789abcdef" * 2 + "01234567"


def content_of(name: str) -> bytes:
    return name.encode() * (100_000 if name == WEIGHTS else 10)


@pytest.fixture
def entry(tmp_path: Path) -> model_table.ModelEntry:
    files = {name: digests.sha256_of_bytes(content_of(name)) for name in NAMES}
    made = msgspec.structs.replace(
        model_table.find_model("shield"), repository="someone/Tiny-Shield", revision=REVISION, files=files
    )
    (tmp_path / "source").mkdir()
    for name in NAMES:
        (tmp_path / "source" / name).write_bytes(content_of(name))
    return made


@pytest.fixture
def server(entry: model_table.ModelEntry, tmp_path: Path) -> Iterator[hub_server.HubServer]:
    with hub_server.serving() as running:
        running.put(entry, tmp_path / "source")
        yield running


@pytest.fixture
def waited() -> list[float]:
    return []


@pytest.fixture
def client(server: hub_server.HubServer, tmp_path: Path, waited: list[float]) -> hub.Hub:
    return hub.Hub(server.address, tmp_path / "cache", waited.append, stalled_s=0.3)


def fetch(client: hub.Hub, entry: model_table.ModelEntry) -> Path:
    return client.fetch(entry, lambda message: None)


def leftovers(client: hub.Hub) -> list[str]:
    """Name whatever is neither a right content nor a link to one."""
    assert client.cache is not None
    files = [path for path in client.cache.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    return [path.name for path in files if digests.sha256_of_file(path) not in {path.name, path.resolve().name}]


def test_files_come_with_their_pinned_bytes_and_huggingface_hub_finds_them_too(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer
) -> None:
    folder = fetch(client, entry)

    model_table.check_checkpoint(folder, entry)
    assert [name for name, _ in server.asked] == list(NAMES)
    for name in NAMES:
        found = try_to_load_from_cache(entry.repository, name, cache_dir=client.cache, revision=entry.revision)
        assert Path(str(found)).read_bytes() == content_of(name)


def test_what_the_cache_holds_is_not_asked_for_again(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer
) -> None:
    fetch(client, entry)
    server.asked.clear()

    fetch(client, entry)

    assert server.asked == []


def test_a_file_that_was_damaged_in_the_cache_is_fetched_again_and_no_other(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer
) -> None:
    folder = fetch(client, entry)
    (folder / WEIGHTS).resolve().write_bytes(b"damaged")
    server.asked.clear()

    fetch(client, entry)

    assert [name for name, _ in server.asked] == [WEIGHTS]
    model_table.check_checkpoint(folder, entry)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong byte", r"found sha256 [0-9a-f]{64}; expected sha256 [0-9a-f]{64}, as pinned"),
        ("longer", "more than the 1,700,000 bytes that were promised"),
        ("redirect loop", "found redirections without an end"),
        ("no revision", f"found no revision {REVISION} of someone/Tiny-Shield"),
        ("no repository", r"found no repository that this account may read \(401\)"),
        ("no file", "found no such file in the repository"),
        ("gated", r"found a repository that asks for consent \(403\)"),
        ("500", "found a Hub that answers 500"),
        ("429 for long", r"found a Hub that asks to wait 3600 s \(429\)"),
        ("closes", "a transfer that broke off after 0 bytes"),
    ],
)
def test_each_failure_is_said_and_the_next_run_succeeds(
    client: hub.Hub,
    entry: model_table.ModelEntry,
    server: hub_server.HubServer,
    waited: list[float],
    fault: str,
    words: str,
) -> None:
    server.faults[WEIGHTS] = [f"{fault} always"]

    with pytest.raises(errors.CheckpointError, match=words) as raised:
        fetch(client, entry)

    assert str(raised.value).startswith(f"someone/Tiny-Shield at {REVISION[:12]}, {WEIGHTS}: found ")
    assert raised.value.fix
    assert raised.value.__cause__ is not None or fault == "wrong byte"
    assert not any(path.name == WEIGHTS for path in client.cache.rglob("*"))  # nothing bears its name
    assert sum(waited) <= hub.LONGEST_WAIT_S

    server.faults.clear()
    model_table.check_checkpoint(fetch(client, entry), entry)
    assert leftovers(client) == []


def test_a_wrong_byte_is_thrown_away_and_not_gone_on_from(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer
) -> None:
    server.faults[WEIGHTS] = ["wrong byte"]
    with pytest.raises(errors.CheckpointError, match="as pinned"):
        fetch(client, entry)
    server.asked.clear()

    fetch(client, entry)

    assert server.asked == [(WEIGHTS, ""), ("tokenizer.json", "")]


@pytest.mark.parametrize("fault", ["breaks off", "truncated", "stalls"])
def test_a_transfer_that_breaks_off_goes_on_where_it_was(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer, fault: str
) -> None:
    server.faults[WEIGHTS] = [fault]

    model_table.check_checkpoint(fetch(client, entry), entry)

    assert [found for name, found in server.asked if name == WEIGHTS] == ["", "bytes=850000-"]


@pytest.mark.parametrize("fault", ["breaks off", "truncated"])
def test_a_line_that_breaks_again_and_again_is_gone_on_from_by_the_next_run(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer, fault: str
) -> None:
    server.faults[WEIGHTS] = [f"{fault} always"]
    with pytest.raises(errors.CheckpointError, match=r"broke off after 1,593,750 bytes .* Run again: it goes on from"):
        fetch(client, entry)
    server.faults.clear()
    server.asked.clear()

    model_table.check_checkpoint(fetch(client, entry), entry)

    assert server.asked == [(WEIGHTS, "bytes=1593750-"), ("tokenizer.json", "")]


def test_a_beginning_that_is_not_the_file_s_is_dropped_and_the_file_fetched_whole(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer
) -> None:
    server.faults[WEIGHTS] = ["breaks off always"]
    with pytest.raises(errors.CheckpointError, match="broke off"):
        fetch(client, entry)
    (part,) = client.cache.rglob("*.vela-partial")
    part.write_bytes(b"another beginning")
    server.faults.clear()
    server.asked.clear()

    model_table.check_checkpoint(fetch(client, entry), entry)

    assert server.asked[:2] == [(WEIGHTS, "bytes=17-"), (WEIGHTS, "")]
    assert leftovers(client) == []


def test_a_hub_that_asks_to_wait_a_little_is_waited_for(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer, waited: list[float]
) -> None:
    server.faults["config.json"] = ["429", "429"]

    model_table.check_checkpoint(fetch(client, entry), entry)

    assert waited == [3.0, 3.0]


def test_a_hub_that_is_not_there_is_said(client: hub.Hub, entry: model_table.ModelEntry) -> None:
    with pytest.raises(errors.CheckpointError, match="a transfer that broke off after 0 bytes"):
        fetch(dataclasses.replace(client, endpoint="http://127.0.0.1:9"), entry)


def test_offline_takes_what_is_right_in_the_cache_and_names_what_is_not(
    client: hub.Hub,
    entry: model_table.ModelEntry,
    server: hub_server.HubServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(errors.CheckpointError, match=r"config\.json: found no such file; .* HF_HUB_OFFLINE is set"):
        fetch(client, entry)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    folder = fetch(client, entry)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.asked.clear()

    assert fetch(client, entry) == folder

    (folder / WEIGHTS).resolve().write_bytes(b"damaged")
    with pytest.raises(errors.CheckpointError, match=r"model\.safetensors: found sha256 [0-9a-f]{64}; expected"):
        fetch(client, entry)
    assert server.asked == []


def test_a_name_leads_from_the_table_through_the_hub_to_its_folder(
    client: hub.Hub, entry: model_table.ModelEntry
) -> None:
    table = model_table.ModelTable(1, "a test", (entry,))

    found = sources.find_checkpoint("someone/tiny-shield", None, table, source=client)

    assert (found.name, found.repository, found.revision) == ("shield", entry.repository, REVISION)
    assert found.is_pinned
    assert (found.folder / WEIGHTS).read_bytes() == content_of(WEIGHTS)


def test_a_file_in_the_cache_that_would_decide_the_task_and_is_not_pinned_is_refused(
    client: hub.Hub, entry: model_table.ModelEntry
) -> None:
    (fetch(client, entry) / "operating_point.json").write_text("{}")

    with pytest.raises(errors.CheckpointError, match="a file that the pinned model does not have"):
        sources.find_checkpoint("shield", None, model_table.ModelTable(1, "a test", (entry,)), source=client)


def test_a_folder_that_is_named_is_compared_and_nothing_is_fetched(
    client: hub.Hub, entry: model_table.ModelEntry, server: hub_server.HubServer, tmp_path: Path
) -> None:
    table = model_table.ModelTable(1, "a test", (entry,))

    assert sources.find_checkpoint("shield", tmp_path / "source", table, source=client).revision == REVISION

    (tmp_path / "source" / "config.json").write_bytes(b"{}")
    with pytest.raises(errors.CheckpointError, match="as pinned for someone/Tiny-Shield"):
        sources.find_checkpoint("shield", tmp_path / "source", table, source=client)
    assert server.asked == []


def test_a_name_that_no_table_knows_needs_a_folder(tmp_path: Path) -> None:
    assert sources.find_checkpoint("mine", tmp_path).name == "mine"
    with pytest.raises(errors.CheckpointError, match="found the model name 'mine'"):
        sources.find_checkpoint("mine", None)
