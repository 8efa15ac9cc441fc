"""Names and shapes of tensors: one constant each, and no shape that cannot be."""

import pytest

from vela.graphs import contract


def test_inputs_are_ids_and_mask_as_existing_loaders_feed_them() -> None:
    ids, mask = contract.graph_inputs("batch", "sequence")

    assert ids == contract.TensorSpec("input_ids", "int64", ("batch", "sequence"))
    assert mask == contract.TensorSpec("attention_mask", "int64", ("batch", "sequence"))


def test_a_bucket_has_numbers_for_dimensions() -> None:
    assert [spec.shape for spec in contract.graph_inputs(4, 128)] == [(4, 128), (4, 128)]


def test_outputs_are_named_by_what_they_are() -> None:
    assert contract.embedding_output(11) == "embedding_l11"
    assert contract.score_output(6, 256) == "score_l6_d256"


@pytest.mark.parametrize(("name", "shape"), [("", (1, 2)), ("x", (0, 2)), ("x", ("batch", -1))])
def test_a_tensor_without_a_name_or_with_an_empty_dimension_cannot_be(name: str, shape: tuple[int | str, ...]) -> None:
    with pytest.raises(ValueError, match=r"a tensor has a name|dimensions are positive"):
        contract.TensorSpec(name, "int64", shape)
