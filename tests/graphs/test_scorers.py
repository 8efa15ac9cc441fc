"""What a reranker's heads file holds, by hand, and every way in which another layout is refused."""

import pytest

from vela.graphs import errors, heads, scorers

DECODER = heads.RerankDecoder((2, 4), (8, 4))
BY_HAND = {
    "heads.layer_2_dim_8.dense.weight": (4, 8),
    "heads.layer_2_dim_8.dense.bias": (4,),
    "heads.layer_2_dim_8.out.weight": (1, 4),
    "heads.layer_2_dim_8.out.bias": (1,),
    "heads.layer_2_dim_4.dense.weight": (2, 4),
    "heads.layer_2_dim_4.dense.bias": (2,),
    "heads.layer_2_dim_4.out.weight": (1, 2),
    "heads.layer_2_dim_4.out.bias": (1,),
}


def test_every_exit_and_dimension_has_the_four_tensors_of_a_scorer() -> None:
    shapes = scorers.scorer_shapes(DECODER)

    assert {name: shape for name, shape in shapes.items() if "layer_2" in name} == BY_HAND
    assert len(shapes) == 16


def test_a_tensor_moves_to_another_exit_and_other_names_stay() -> None:
    assert scorers.at_exit("heads.layer_0_dim_64.out.bias", 22) == "heads.layer_22_dim_64.out.bias"
    assert scorers.at_exit("final_norm.weight", 22) == "final_norm.weight"


def test_only_a_scorer_s_tensor_belongs_to_another_exit() -> None:
    assert scorers.is_of_another_exit("heads.layer_22_dim_64.out.bias", 2)
    assert not scorers.is_of_another_exit("heads.layer_2_dim_64.out.bias", 2)
    assert not scorers.is_of_another_exit("layers.22.mlp.Wi.weight", 2)


def test_the_file_of_a_decoder_is_taken() -> None:
    scorers.check_scorers(scorers.scorer_shapes(DECODER), DECODER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"heads.layer_2_dim_8.out.bias": None},
            r"found 15 tensors.*1 are not there \(heads\.layer_2_dim_8\.out\.bias",
        ),
        ({"heads.layer_3_dim_8.out.bias": (1,)}, r"1 are not a scorer's \(heads\.layer_3_dim_8\.out\.bias \(1,\)"),
        ({"heads.layer_2_dim_8.dense.weight": (8, 4)}, r"dense\.weight \(8, 4\).*dense\.weight \(4, 8\)"),
    ],
)
def test_a_tensor_that_is_missing_left_over_or_of_another_shape_is_named(change: dict, message: str) -> None:
    changed = scorers.scorer_shapes(DECODER) | change
    found = {name: shape for name, shape in changed.items() if shape is not None}

    with pytest.raises(errors.CheckpointError, match=message):
        scorers.check_scorers(found, DECODER)


def test_another_layout_says_what_was_found_and_what_was_expected() -> None:
    with pytest.raises(errors.CheckpointError) as refused:
        scorers.check_scorers({"scorers.0.0.weight": (4, 8)}, DECODER)

    assert "scorers.0.0.weight (4, 8)" in str(refused.value)
    assert "heads.layer_2_dim_8.dense.weight (4, 8)" in str(refused.value)
    assert "16 tensors" in str(refused.value)


def test_a_dimension_that_cannot_be_halved_is_refused() -> None:
    decoder = heads.RerankDecoder((2,), (8, 3))

    with pytest.raises(errors.CheckpointError, match=r"odd dimensions \[3\]"):
        scorers.check_scorers(scorers.scorer_shapes(decoder), decoder)
