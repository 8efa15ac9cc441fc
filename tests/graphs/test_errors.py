"""Every error says what was found, what was expected, where, and what to do; and has one root."""

import inspect

import pytest

from vela.graphs import errors

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if found.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_the_root_and_its_four_parts(kind: type[errors.VelaError]) -> None:
    code = ("invalid_input",) if kind is errors.ItemError else ()

    made = kind(*code, "a cat", expected="a dog", where="the basket", fix="Call the vet.")

    assert isinstance(made, errors.VelaError)
    assert str(made) == "the basket: found a cat; expected a dog. Call the vet."
    assert (made.found, made.expected, made.where, made.fix) == ("a cat", "a dog", "the basket", "Call the vet.")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_when_it_is_raised(kind: type[errors.VelaError]) -> None:
    assert kind.__doc__
    assert kind.__doc__.splitlines()[0].endswith(".")


def test_misuse_by_our_own_callers_is_no_vela_error() -> None:
    assert not issubclass(errors.VelaError, ValueError)
