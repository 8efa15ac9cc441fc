"""The shipped samples, exported, verified, published and served: answers are those of their graphs, run by hand."""

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from vela.graphs import bundle as opened_bundles
from vela.graphs import heads
from vela.serve import device, engine, registry, tokenization
from vela.serve.http.app import build_app

SEQUENCE = ("tiny-intent", "tiny-guard")
TEXTS = (
    "My new card has not arrived yet, where is it?",
    "x",
    "  leading and trailing space \n",
    "Größe 😀 çok güzel 日本語 اللغة",
    "literal <bos> <eos> [CLS] [SEP] are text",
)
LONG = " ".join(f"Item {number}: call Maria Lopez on 555-01{number:02d} about order {number}." for number in range(60))


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[TestClient]:
    loaded = registry.Registry(registry.Plan(registry.sources_from_store(store)))
    assert loaded.load() == []
    with TestClient(build_app(loaded)) as made:
        yield made
    loaded.close()


class ByHand:
    """A bundle's dynamic graph and tokenizer, used without any of serve's windows, decoders or lanes."""

    def __init__(self, folder: Path) -> None:
        self.bundle = opened_bundles.Bundle.open(folder)
        graph = self.bundle.graph("model")
        self.session = engine.Session.open(self.bundle.path(graph.file), graph, device.CPU)
        self.tokenizer = tokenization.Tokenizer.from_bundle(self.bundle)
        self.facts = self.bundle.manifest.tokenizer

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode([text], with_offsets=False)[0].ids)

    def run(self, ids: list[int], output: str = "logits") -> np.ndarray:
        row = np.array([[*self.facts.prefix, *ids, *self.facts.suffix]])
        return self.session.run({"input_ids": row, "attention_mask": np.ones_like(row)})[output][0]

    def softmax(self, ids: list[int]) -> np.ndarray:
        powers = np.exp(self.run(ids).astype(np.float64))
        return powers / powers.sum(axis=-1, keepdims=True)


def results(client: TestClient, model: str, texts: list[str], **options: object) -> list[dict[str, object]]:
    response = client.post("/v1/classify", json={"model": model, "input": texts, "options": options})
    assert response.status_code == 200, response.text
    return response.json()["results"]


@pytest.mark.parametrize("name", SEQUENCE)
def test_a_label_is_what_the_graph_says(client: TestClient, bundles: dict[str, Path], name: str) -> None:
    by_hand = ByHand(bundles[name])
    labels = heads.labels_of(by_hand.bundle.manifest.head().decoder)

    for text, result in zip(TEXTS, results(client, name, list(TEXTS)), strict=True):
        expected = by_hand.softmax(by_hand.ids(text))
        assert result["probabilities"] == pytest.approx(expected.tolist(), abs=1e-12)
        assert result["label"] == labels[int(np.argmax(expected))]


@pytest.mark.parametrize("name", SEQUENCE)
def test_windows_are_the_maximum_over_slices_run_one_by_one(
    client: TestClient, bundles: dict[str, Path], name: str
) -> None:
    by_hand = ByHand(bundles[name])
    ids = by_hand.ids(LONG)
    frame = len(by_hand.facts.prefix) + len(by_hand.facts.suffix)
    width, stride = 64 - frame, 64 - frame - 16
    starts = [0]
    while starts[-1] + width < len(ids):
        starts.append(starts[-1] + stride)

    result = results(client, name, [LONG], overflow="window", window={"tokens": 64, "overlap": 16})[0]

    expected = np.max([by_hand.softmax(ids[start : start + width]) for start in starts], axis=0)
    assert result["input"]["windows"] == len(starts) > 5  # type: ignore[index]
    assert result["probabilities"] == pytest.approx(expected.tolist(), abs=1e-12)


def test_a_multi_label_head_selects_by_its_operating_point(client: TestClient, bundles: dict[str, Path]) -> None:
    decoder = opened_bundles.Bundle.open(bundles["tiny-multilabel"]).manifest.head().decoder
    assert isinstance(decoder, heads.ScoresDecoder)
    assert decoder.operating_point is not None

    for result in results(client, "tiny-multilabel", list(TEXTS)):
        passed = [
            label
            for label, score, least in zip(
                decoder.labels,
                result["scores"],
                decoder.operating_point.thresholds,
                strict=True,  # type: ignore[arg-type]
            )
            if (score >= least if decoder.operating_point.comparison == "score >= threshold" else score > least)
        ]
        assert result["selected"] == passed


def test_personal_data_is_found_where_it_stands(client: TestClient) -> None:
    text = "🙂 Please write to maria.lopez@example.com today."

    spans = results(client, "tiny-pii", [text])[0]["spans"]

    assert any(span["label"] == "EMAIL_ADDRESS" and "@" in span["text"] for span in spans)  # type: ignore[attr-defined]
    assert all(span["text"] == text[span["start"] : span["end"]] for span in spans)  # type: ignore[attr-defined]


def test_token_windows_take_the_row_with_the_most_context(client: TestClient, bundles: dict[str, Path]) -> None:
    by_hand = ByHand(bundles["tiny-pii"])
    text = LONG[:700]
    ids = by_hand.ids(text)
    first = len(by_hand.facts.prefix)
    width = 40 - first - len(by_hand.facts.suffix)
    planned = [(0, min(width, len(ids)))]
    while planned[-1][1] < len(ids):
        start = planned[-1][0] + width - 12
        planned.append((start, min(start + width, len(ids))))
    rows = [by_hand.softmax(ids[start:end])[first : first + end - start] for start, end in planned]

    options = {"overflow": "window", "window": {"tokens": 40, "overlap": 12}, "return_tokens": True}
    tokens = results(client, "tiny-pii", [text], **options)[0]["tokens"]

    for place, token in enumerate(tokens):  # type: ignore[arg-type]
        inside = [number for number, (start, end) in enumerate(planned) if start <= place < end]
        chosen = max(
            inside, key=lambda number: (min(place - planned[number][0], planned[number][1] - 1 - place), -number)
        )
        expected = rows[chosen][place - planned[chosen][0]]
        assert token["probabilities"] == pytest.approx(expected.tolist(), abs=1e-12)


def test_an_embedding_is_the_graphs_vector_at_unit_length(client: TestClient, bundles: dict[str, Path]) -> None:
    by_hand = ByHand(bundles["tiny-embedding"])
    decoder = by_hand.bundle.manifest.head().decoder
    assert isinstance(decoder, heads.EmbeddingDecoder)

    for layer, dimension in itertools.product((None, *decoder.exits), decoder.dimensions):
        body = {"model": "tiny-embedding", "input": TEXTS[0], "layer": layer, "dimensions": dimension}
        response = client.post("/v1/embeddings", json=body | {"encoding_format": "base64"})
        found = np.frombuffer(base64.b64decode(response.json()["data"][0]["embedding"]), dtype="<f4")

        assert len(found) == dimension
        assert np.linalg.norm(found.astype(np.float64)) == pytest.approx(1, abs=1e-6)
        if layer in (None, decoder.exits[-1]):
            raw = by_hand.run(by_hand.ids(TEXTS[0]), f"embedding_l{decoder.exits[-1]}")[:dimension].astype(np.float64)
            assert found == pytest.approx(raw / np.linalg.norm(raw), abs=1e-7)


DOCUMENTS = ("I lost my card", "Where can I change money?", "my new card is not here yet", "😀", "x " * 90)


def test_documents_are_ranked_by_the_scorer_that_was_asked_for(client: TestClient, bundles: dict[str, Path]) -> None:
    opened = opened_bundles.Bundle.open(bundles["tiny-reranker"])
    decoder = opened.manifest.head().decoder
    assert isinstance(decoder, heads.RerankDecoder)
    tokenizer = tokenization.Tokenizer.from_bundle(opened)
    ids = [content.ids for content in tokenizer.encode([TEXTS[0], *DOCUMENTS], with_offsets=False)]
    framed = [np.array([tokenizer.frame_pair(ids[0], document).ids]) for document in ids[1:]]
    files = {graph.exit_layer: graph for graph in opened.manifest.graphs if graph.sequence is None}

    for layer, size in itertools.product((None, *decoder.exits), (None, *decoder.dimensions)):
        graph = files[layer or decoder.exits[-1]]
        session = engine.Session.open(opened.path(graph.file), graph, device.CPU)
        name = f"score_l{graph.exit_layer}_d{size or decoder.dimensions[0]}"
        logits = [
            float(session.run({"input_ids": row, "attention_mask": np.ones_like(row)})[name][0]) for row in framed
        ]
        body = {"model": "tiny-reranker", "query": TEXTS[0], "documents": DOCUMENTS, "layer": layer, "dimensions": size}
        found = client.post("/v1/rerank", json={key: value for key, value in body.items() if value is not None}).json()

        assert [result["index"] for result in found["results"]] == sorted(range(5), key=lambda place: -logits[place])
        assert [result["logit"] for result in found["results"]] == pytest.approx(sorted(logits, reverse=True), abs=1e-6)


@pytest.mark.parametrize("wrong", [{"layer": 3}, {"dimensions": 48}, {"layer": 2, "dimensions": 95}])
def test_a_scorer_that_the_model_does_not_have_is_refused(client: TestClient, wrong: dict[str, int]) -> None:
    response = client.post("/v1/rerank", json={"model": "tiny-reranker", "query": "q", "documents": ["d"]} | wrong)

    assert response.status_code == 400
    assert "score_l2_d32" in response.json()["error"]["message"]


def test_every_sample_is_ready_and_bound_to_its_bundle(client: TestClient, bundles: dict[str, Path]) -> None:
    cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}

    assert set(cards) == set(bundles)
    for name, folder in bundles.items():
        assert cards[name]["manifest_sha256"] == opened_bundles.Bundle.open(folder).manifest_sha256
        assert cards[name]["ready"]
