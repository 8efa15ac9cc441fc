"""What a reader sees of text and numbers that come from elsewhere."""

import pytest

from vela.verify.report import visible


@pytest.mark.parametrize(
    "text", ["plain words", "Überraschung", "日本語のテキスト", "مرحبا بالعالم", "किताब", "🎉", "a\u00a0b", ""]
)
def test_text_of_any_script_stays_as_it_is(text):
    assert visible.visible(text) == text


def test_joiners_that_scripts_and_emoji_are_written_with_stay():
    family = "👩\u200d👩\u200d👧 می\u200cخواهم"

    assert visible.visible(family) == family


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\0b", "a⟦U+0000⟧b"),
        ("a\x1b[31m", "a⟦U+001B⟧[31m"),
        ("a\tb", "a⟦U+0009⟧b"),
        ("a\rb", "a⟦U+000D⟧b"),
        ("a\x7fb", "a⟦U+007F⟧b"),
        ("a\x85b", "a⟦U+0085⟧b"),
        ("a\u202eb", "a⟦U+202E⟧b"),
        ("a\u2066b\u2069", "a⟦U+2066⟧b⟦U+2069⟧"),
        ("a\u200bb", "a⟦U+200B⟧b"),
        ("a\ufeffb", "a⟦U+FEFF⟧b"),
        ("a\u2028b", "a⟦U+2028⟧b"),
        ("a\ud800b", "a⟦U+D800⟧b"),
        ("a\U000e0041b", "a⟦U+E0041⟧b"),
    ],
)
def test_what_would_not_show_or_would_deceive_is_written_out(text, shown):
    assert visible.visible(text) == shown


def test_a_line_break_is_kept_behind_its_mark():
    assert visible.visible("one\ntwo") == "one↵\ntwo"


def test_text_that_nobody_would_read_is_cut_and_says_so():
    found = visible.visible("x" * 1_000_000)

    assert len(found) < visible.TEXT_LIMIT + 50
    assert found.endswith("… (996,000 more characters)")


def test_a_sentence_is_cut_at_a_word():
    assert visible.shorten("one two three", 9) == "one two …"
    assert visible.shorten("one two", 9) == "one two"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (3.7123e-06, "3.7e-06"), (0.81, "8.1e-01"), (5e-324, "4.9e-324")]
)
def test_differences_have_two_digits(value, shown):
    assert visible.small_number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.001, "<0.01"),
        (0.214, "0.21"),
        (1.26, "1.3"),
        (1620.4, "1,620"),
        (162000.0, "1.6e+05"),
        (float("inf"), "inf"),
    ],
)
def test_shares_of_a_bound_have_two_digits(value, shown):
    assert visible.share(value) == shown


def test_durations_below_a_second_are_in_milliseconds():
    assert visible.seconds(0.0071) == "7\u00a0ms"
    assert visible.seconds(12.34) == "12.3\u00a0s"
