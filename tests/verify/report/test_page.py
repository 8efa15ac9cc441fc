"""The page as a browser reads it: nothing but the records' figures, nothing of theirs as markup, and no false pass."""

import itertools
import re

import msgspec
import pytest

from vela.graphs import record
from vela.verify.report import page, reading

HOSTILE = "</style></bdi><script>alert(1)</script>\"' onload=x {{ 7 * 7 }} \u202egnp.exe\u202c \0 \x1b[2J &lt;b&gt;"
DECEIVING = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
EVENT = re.compile(r"^on")


def poison(value):
    """Put hostile text wherever a record holds text that its shape does not restrict."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, tuple | list):
        return tuple(map(poison, value))
    if isinstance(value, dict):
        return {HOSTILE: HOSTILE, **{key: poison(entry) for key, entry in value.items()}}
    if isinstance(value, msgspec.Struct):
        kept = {"verdict", "status", "form"}
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: entry if name in kept else poison(entry) for name, entry in fields.items()}
        return msgspec.structs.replace(value, **changed)
    return value


@pytest.fixture(scope="module")
def hostile_page(read_page, make_record, make_failed, make_not_compared):
    records = [poison(make()) for make in (make_record, make_failed, make_not_compared)]
    # A bar that is known, so that every figure and plot is drawn too.
    records += [msgspec.structs.replace(found, bar="strict") for found in records]
    left_out = (reading.LeftOut(HOSTILE, HOSTILE),)
    return read_page(*records, unjudged=(HOSTILE,), left_out=left_out)


def test_hostile_text_is_text_and_never_an_element_or_an_attribute(hostile_page):
    assert hostile_page.all("script") == []
    attributes = {name for _, found in hostile_page.elements for name in found}
    assert [name for name in attributes if EVENT.match(name)] == []
    assert attributes <= {
        *("aria-hidden", "aria-label", "aria-labelledby", "charset", "class", "colspan", "content", "cx", "cy", "d"),
        *(
            "dir",
            "height",
            "href",
            "http-equiv",
            "id",
            "lang",
            "name",
            "open",
            "r",
            "role",
            "rowspan",
            "scope",
            "style",
        ),
        *("tabindex", "title", "transform", "value", "viewbox", "width", "x", "y"),
    }
    assert "<script>alert(1)</script>" in hostile_page.text
    assert "{{ 7 * 7 }}" in hostile_page.text


def test_what_would_deceive_a_reader_is_written_out_everywhere(hostile_page):
    values = [value or "" for _, found in hostile_page.elements for value in found.values()]

    assert [text for text in (hostile_page.text, *values) if DECEIVING.search(text)] == []
    assert "⟦U+202E⟧gnp.exe⟦U+202C⟧ ⟦U+0000⟧ ⟦U+001B⟧[2J" in hostile_page.text


def test_the_page_needs_no_other_file_and_forbids_one(hostile_page):
    policies = [found["content"] for found in hostile_page.all("meta") if "http-equiv" in found]
    links = [found["href"] for _, found in hostile_page.elements if "href" in found]

    assert policies == [page.POLICY]
    assert page.POLICY.startswith("default-src 'none'")
    assert [link for link in links if not link.startswith("#")] == []
    assert {"link", "img", "iframe", "script", "object", "base", "form"} & {
        tag for tag, _ in hostile_page.elements
    } == set()


def test_every_link_leads_to_one_place_of_the_page(read_page, make_record, make_failed, make_not_compared):
    found = read_page(make_record("a"), make_failed("b"), make_not_compared("c"))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    targets = {attributes["href"].removeprefix("#") for _, attributes in found.elements if "href" in attributes}

    assert len(ids) == len(set(ids))
    assert targets <= set(ids)


def figures_of(value):
    """Give every number that a record holds."""
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return {number for entry in value for number in figures_of(entry)}
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def test_every_figure_shown_is_the_records_and_every_statistic_is_shown(read_page, make_failed):
    found = make_failed()
    shown = read_page(found)
    bounds = {5e-4, 1e-4, 8 * found.reference_noise}
    counted = {1.0, 0.0, 3.0, 4.0}  # graphs, near ties, agreed runs and runs

    assert set(shown.figures) <= figures_of(found) | bounds | counted
    for group in found.statistics:
        figures = {
            *(group.max_abs_probability, group.p99_abs_probability, group.median_abs_probability),
            *(group.max_abs_logit, group.p99_abs_logit, group.cases, group.agreed, group.near_ties),
        }
        assert figures <= set(shown.figures)
    assert {found.duration_s, found.estimate.seconds, found.planned, found.compared} <= set(shown.figures)


def test_changing_a_figure_of_the_record_changes_the_page(read_page, make_record, make_statistics):
    before = read_page(make_record())
    after = read_page(make_record(statistics=(make_statistics(max_abs_logit=3.125e-05),)))

    assert 3.125e-05 not in before.figures
    assert 3.125e-05 in after.figures


def outcome(found):
    """Give the class of the page's head and the word in it."""
    (head,) = found.all("header")
    return head["class"], found.text.split("Verification report", 1)[1].split("graphs passed", 1)[0].split()


def test_a_pass_says_so_by_word_and_colour_and_icon(read_page, make_record):
    found = read_page(make_record())

    assert outcome(found) == ("top passed", ["sample", "Passed", "1", "of", "1"])
    assert "#icon-passed" in {attributes["href"] for attributes in found.all("use")}
    assert "Every check passed and every bound held." in found.text


@pytest.mark.parametrize("with_pass", [False, True])
def test_a_failed_record_never_renders_the_passed_headline(read_page, make_record, make_failed, with_pass):
    found = read_page(*[make_record("a")] * with_pass, make_failed("b"))

    assert outcome(found)[0] == "top failed"
    assert outcome(found)[1][:2] == ["sample", "Failed"]


@pytest.mark.parametrize("with_pass", [False, True])
def test_a_record_that_was_not_compared_never_renders_the_passed_headline(
    read_page, make_record, make_not_compared, with_pass
):
    found = read_page(*[make_record("a")] * with_pass, make_not_compared("b"))

    assert outcome(found)[0] == "top not_compared"
    assert outcome(found)[1][:3] == ["sample", "Not", "compared"]
    if not with_pass:
        assert "Passed" not in found.text
        assert "#icon-passed" not in {attributes["href"] for attributes in found.all("use")}


def test_a_record_that_contradicts_its_pass_never_renders_the_passed_headline(read_page, make_record):
    assert outcome(read_page(make_record(engine=None)))[0] == "top not_compared"


def test_what_did_not_pass_is_open_and_what_passed_is_folded(read_page, make_record, make_failed):
    found = read_page(make_record("a"), make_failed("b"))

    assert ["open" in attributes for attributes in found.all("details")] == [False, True]


def test_a_bar_that_nobody_knows_is_not_judged_on_the_page(read_page, make_record):
    found = read_page(make_record(bar="generous", bars=(record.BarResult("generous", "passed", ()),)))

    assert "a bar that this version of Vela does not know" in found.text


def test_equal_records_give_equal_pages(make_record, make_failed):
    collected = reading.Collected("sample", (make_record("a"), make_failed("b")))

    assert page.render(collected) == page.render(collected)


def test_headings_descend_one_level_at_a_time(read_page, make_record, make_failed):
    levels = [
        int(tag[1]) for tag, _ in read_page(make_record("a"), make_failed("b")).elements if re.fullmatch("h[1-6]", tag)
    ]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert [pair for pair in itertools.pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_every_table_has_a_caption_and_headed_columns(read_page, make_failed):
    found = read_page(make_failed())

    assert len(found.all("table")) == len(found.all("caption"))
    assert all(attributes.get("scope") for attributes in found.all("th"))


def test_writing_replaces_a_page_and_does_not_follow_a_planted_link(tmp_path, make_record):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    target = tmp_path / "report.html"
    target.symlink_to(elsewhere)
    (tmp_path / ".report.html.partial").symlink_to(elsewhere)

    page.write(target, reading.Collected("sample", (make_record(),)))

    assert elsewhere.read_text() == "mine"
    assert not target.is_symlink()
    assert target.read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []
