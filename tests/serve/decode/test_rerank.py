"""The order of documents."""

from vela.serve.decode import rerank


def test_the_highest_logit_comes_first_and_ties_keep_the_requests_order() -> None:
    assert rerank.order_documents([0.0, 2.0, 2.0, -1.0]) == [1, 2, 0, 3]


def test_logits_decide_where_scores_are_equal() -> None:
    logits = [40.0, 60.0]

    assert [rerank.relevance_score(logit) for logit in logits] == [1.0, 1.0]
    assert rerank.order_documents(logits) == [1, 0]
