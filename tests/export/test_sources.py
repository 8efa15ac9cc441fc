"""Where a checkpoint comes from: the folder that is named, else the Hub's cache, else the Hub."""

from collections.abc import Iterator
from pathlib import Path

import hub_case
import pytest

from vela.export import sources
from vela.graphs import errors


@pytest.fixture
def case(tmp_path: Path) -> Iterator[hub_case.Case]:
    with hub_case.opened(tmp_path) as made:
        yield made


def find(case: hub_case.Case, name: str | None, folder: Path | None = None) -> sources.Source:
    return sources.find_checkpoint(name, folder, case.table, progress=case.said.append, source=case.client)


@pytest.mark.parametrize("name", ["shield", "Shield", "someone/tiny-shield"])
def test_a_name_leads_from_the_table_through_the_hub_to_its_folder(case: hub_case.Case, name: str) -> None:
    found = find(case, name)

    assert (found.name, found.repository, found.revision) == ("shield", case.entry.repository, hub_case.REVISION)
    assert found.is_pinned
    assert (found.folder / hub_case.WEIGHTS).read_bytes() == hub_case.content_of(hub_case.WEIGHTS)
    assert [line.partition(":")[0] for line in case.said] == list(hub_case.NAMES)


def test_what_the_cache_has_comes_without_a_request(case: hub_case.Case) -> None:
    first = find(case, "shield")
    case.server.asked.clear()

    assert find(case, "shield") == first
    assert case.server.asked == []


def test_a_file_in_the_cache_that_would_decide_the_task_and_is_not_pinned_is_refused(case: hub_case.Case) -> None:
    (case.fetch() / "operating_point.json").write_text("{}")

    with pytest.raises(errors.CheckpointError, match="a file that the pinned model does not have"):
        find(case, "shield")


def test_a_folder_that_is_named_is_compared_and_nothing_is_fetched(case: hub_case.Case) -> None:
    assert find(case, "shield", case.source).revision == hub_case.REVISION

    (case.source / "config.json").write_bytes(b"{}")
    with pytest.raises(errors.CheckpointError, match="as pinned for someone/Tiny-Shield"):
        find(case, "shield", case.source)
    assert case.server.asked == []


@pytest.mark.parametrize("name", ["mine", None])
def test_a_name_that_no_table_knows_needs_a_folder(case: hub_case.Case, name: str | None) -> None:
    found = find(case, name, case.source)

    assert (found.name, found.is_pinned, found.revision) == (name or "source", False, "")
    with pytest.raises(errors.CheckpointError, match=f"found the model name '{name or ''}'"):
        find(case, name)
    assert case.server.asked == []


def test_a_name_of_the_family_is_unknown_to_a_table_without_it(case: hub_case.Case) -> None:
    with pytest.raises(errors.CheckpointError, match=r"found the model name 'fact'; expected one of Shield"):
        find(case, "fact")
