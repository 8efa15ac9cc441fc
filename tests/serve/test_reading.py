"""How inputs are read: whole, refused, truncated or in windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vela.graphs import errors, heads
from vela.serve import policy, reading
from vela.serve.model import ServedModel
from vela.serve.reading import Grounded, Pair, Reading

BOS, EOS = 256, 257


def read(model: ServedModel, item: reading.Item, **options: object) -> Reading:
    """Read one input of which nothing is wrong."""
    found = read_any(model, item, **options)
    assert isinstance(found, Reading), found
    return found


def read_any(model: ServedModel, item: reading.Item, **options: object) -> Reading | errors.ItemError:
    rules = model.settle(policy.Options(**options), model.default_output)
    return model.read([item], rules)[0]


def code_of(found: Reading | errors.ItemError) -> str:
    assert isinstance(found, errors.ItemError), found
    return found.code


def test_a_text_that_fits_is_read_whole(served: dict[str, ServedModel]) -> None:
    found = read(served["mood"], "a" * 62)

    assert (found.report.tokens, found.report.processed_tokens, found.report.truncated) == (64, 64, False)
    assert found.rows[0].ids == (BOS, *served["mood"].tokenizer.encode(["a" * 62], with_offsets=False)[0].ids, EOS)


def test_a_text_one_token_longer_is_refused_by_default(served: dict[str, ServedModel]) -> None:
    found = read_any(served["mood"], "a" * 63)

    assert code_of(found) == "max_length_exceeded"
    assert "65 tokens" in str(found)
    assert "at most 64" in str(found)


def test_truncation_keeps_the_first_content_tokens_inside_the_frame(served: dict[str, ServedModel]) -> None:
    whole = served["mood"].tokenizer.encode(["abcdefgh"], with_offsets=False)[0].ids

    found = read(served["mood"], "abcdefgh", overflow="truncate", max_tokens=5)

    assert found.rows[0].ids == (BOS, *whole[:3], EOS)
    assert (found.report.tokens, found.report.processed_tokens, found.report.truncated) == (10, 5, True)


def test_truncation_changes_nothing_where_nothing_is_too_long(served: dict[str, ServedModel]) -> None:
    assert read(served["mood"], "abc", overflow="truncate") == read(served["mood"], "abc")


def test_token_heads_truncate_to_a_prefix_of_the_text(served: dict[str, ServedModel]) -> None:
    found = read(served["names"], "abcdefgh", overflow="truncate", max_tokens=5)

    assert found.text == "abc"
    assert found.offsets == ((0, 1), (1, 2), (2, 3))


def test_a_prefix_whose_tokens_grow_at_the_cut_loses_a_character_more(served: dict[str, ServedModel]) -> None:
    # The third content token is the first byte of the emoji: cutting behind the emoji needs four tokens, so it goes.
    found = read(served["names"], "ab🙂cd", overflow="truncate", max_tokens=5)

    assert found.text == "ab"
    assert found.report.processed_tokens == 4


@given(text=st.text(min_size=1, max_size=40), limit=st.integers(2, 20))
def test_a_truncated_token_text_is_a_prefix_that_fits(served: dict[str, ServedModel], text: str, limit: int) -> None:
    found = read(served["names"], text, overflow="truncate", max_tokens=limit)

    assert text.startswith(found.text)
    assert len(found.rows[0].ids) <= limit
    assert found.report.truncated == (found.text != text)


def test_a_window_reads_ids_inside_the_frame(served: dict[str, ServedModel]) -> None:
    whole = served["mood"].tokenizer.encode(["abcdefgh"], with_offsets=False)[0].ids

    found = read(served["mood"], "abcdefgh", overflow="window", window=heads.Window(6, 1))

    assert [row.ids for row in found.rows] == [(BOS, *whole[0:4], EOS), (BOS, *whole[3:7], EOS), (BOS, *whole[6:], EOS)]
    assert (found.report.tokens, found.report.processed_tokens, found.report.windows) == (10, 10, 3)


def test_a_short_text_is_one_window(served: dict[str, ServedModel]) -> None:
    found = read(served["topics"], "ab")

    assert found.report.windows == 1
    assert len(found.slices) == 1


def test_a_document_over_the_scan_budget_is_refused(served: dict[str, ServedModel]) -> None:
    assert code_of(read_any(served["topics"], "a" * 63)) == "scan_budget_exceeded"
    assert code_of(read_any(served["topics"], "a" * 30, max_tokens=31)) == "scan_budget_exceeded"
    assert isinstance(read_any(served["topics"], "a" * 29, max_tokens=31), Reading)


@pytest.mark.parametrize("name", ["mood", "topics", "names"])
def test_an_empty_text_is_invalid(served: dict[str, ServedModel], name: str) -> None:
    assert code_of(read_any(served[name], "")) == "invalid_input"


@pytest.mark.parametrize(("name", "item"), [("mood", Pair("a", "b")), ("claims", "a"), ("mood", Grounded("", "", "a"))])
def test_an_input_of_another_kind_is_invalid(served: dict[str, ServedModel], name: str, item: reading.Item) -> None:
    assert code_of(read_any(served[name], item)) == "invalid_input"


def test_one_bad_input_leaves_its_neighbours_alone(served: dict[str, ServedModel]) -> None:
    rules = served["mood"].settle(policy.Options(), "logits")

    found = served["mood"].read(["good", "\ud800", "", "fine"], rules)

    assert [isinstance(item, Reading) for item in found] == [True, False, False, True]


def test_a_grounded_item_is_prompt_and_answer(served: dict[str, ServedModel]) -> None:
    tokenizer = served["claims"].tokenizer
    prompt, answer = tokenizer.encode(["User request: when?\n\nIn 1889.", "Then."], with_offsets=True)

    found = read(served["claims"], Grounded("In 1889.", "when?", "Then."))

    assert found.rows[0].ids == (BOS, *prompt.ids, EOS, *answer.ids, EOS)
    assert (found.rows[0].first, found.rows[0].count) == (len(prompt.ids) + 2, 5)
    assert (found.text, found.offsets) == ("Then.", answer.offsets)


def test_braces_in_a_grounded_item_stay_text(served: dict[str, ServedModel]) -> None:
    plain = read(served["claims"], Grounded("{question}", "{context}", "a"))

    expected = served["claims"].tokenizer.encode(["User request: {context}\n\n{question}"], with_offsets=False)[0].ids
    assert plain.rows[0].ids[1 : 1 + len(expected)] == expected


def test_grounded_truncation_cuts_the_prompts_tail_and_keeps_the_answer(served: dict[str, ServedModel]) -> None:
    item = Grounded("c" * 100, "q", "answer")

    found = read(served["claims"], item, overflow="truncate")

    assert found.report.processed_tokens == 96
    assert found.report.truncated
    assert found.rows[0].count == 6
    assert found.rows[0].ids[-1] == EOS


def test_a_grounded_answer_that_does_not_fit_alone_is_refused(served: dict[str, ServedModel]) -> None:
    item = Grounded("c", "q", "a" * 94)

    assert code_of(read_any(served["claims"], item, overflow="truncate")) == "max_length_exceeded"
    assert code_of(read_any(served["claims"], Grounded("c", "q", ""))) == "invalid_input"


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("mood", {"overflow": "window"}, "options.window"),
        ("mood", {"window": heads.Window(8, 1)}, "options.window"),
        ("mood", {"overflow": "window", "window": heads.Window(65, 1)}, "options.window.tokens"),
        ("mood", {"overflow": "window", "window": heads.Window(8, 6)}, "options.window.overlap"),
        ("mood", {"max_tokens": 65}, "options.max_tokens"),
        ("mood", {"max_tokens": 1}, "options.max_tokens"),
        ("mood", {"threshold": 0.5}, "options.threshold"),
        ("topics", {"return_tokens": True}, "options.return_tokens"),
        ("claims", {"overflow": "window", "window": heads.Window(8, 1)}, "options.overflow"),
        ("vectors", {"overflow": "window", "window": heads.Window(8, 1)}, "options.overflow"),
    ],
)
def test_an_option_that_does_not_suit_the_head_is_refused(
    served: dict[str, ServedModel], name: str, options: dict[str, object], field: str
) -> None:
    model = served[name]

    with pytest.raises(errors.InvalidRequest) as caught:
        model.settle(policy.Options(**options), model.default_output)

    assert caught.value.where == field
