"""The PyTorch reference: a fresh model from the checkpoint, SDPA, no hook, no patch, no padding.

The gate judges graphs against it. It shares no module with what was traced: its own `from_pretrained`, Transformers'
own SDPA attention, one length at a time so that no mask is involved, and pooling and pair scorers written again.
"""

import contextlib
import importlib.metadata
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from transformers import PreTrainedModel
from transformers.utils import logging

from vela.export import effective, forms
from vela.graphs import contract, errors, heads, task
from vela.verify import checkpoint, reference

ROWS_AT_ONCE = 8  # rows of equal length share a forward pass; more would not be faster on a CPU
# Below this many weights one thread is faster: entering a parallel region costs more than it saves. Measured on a
# 0.8M checkpoint, 728 inputs of 2 to 512 tokens: 3.9 s with one thread, 26 s with two.
SINGLE_THREAD_BELOW = 20_000_000
SCORER_TENSORS = ("dense.weight", "dense.bias", "out.weight", "out.bias")


class PyTorchReference:
    """Answers of the checkpoint itself.

    Attributes:
        facts: What a record says of it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        head: heads.Head,
        facts: reference.ReferenceFacts,
        scorers: Mapping[str, torch.Tensor],
    ) -> None:
        self._model = model
        self._head = head
        self._scorers = scorers
        self._is_pooled_otherwise = False
        self._first = 0
        self._unseen = 0
        self.facts = facts

    @property
    def model(self) -> PreTrainedModel:
        """The model that answers; whoever changes it puts it back (export/mutants.py)."""
        return self._model

    @contextlib.contextmanager
    def pooled_otherwise(self) -> Iterator[None]:
        """Pool by the first token where the mean belongs, and the other way round, for heads that pool here."""
        self._is_pooled_otherwise = True
        try:
            yield
        finally:
            self._is_pooled_otherwise = False

    @contextlib.contextmanager
    def pooled_from(self, token: int) -> Iterator[None]:
        """Take another token for the first, -1 for the last, for heads that pool here."""
        self._first = token
        try:
            yield
        finally:
            self._first = 0

    @classmethod
    def from_checkpoint(cls, source: checkpoint.Checkpoint, dtype: torch.dtype = torch.float32) -> Self:
        """Load a checkpoint afresh and check that it was read as its config says.

        Raises:
            CheckpointError: tensors are missing or left over, or the model is not what config.json states.
        """
        logging.disable_progress_bar()  # Transformers draws one for each load, over whatever progress Vela prints
        model, loading = forms.model_class(source.head, source.model_type).from_pretrained(
            source.folder, attn_implementation="sdpa", dtype=torch.float32, output_loading_info=True
        )
        _check_loading(loading)
        effective.check_effective(model, source.architecture)
        versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers"))
        facts = reference.ReferenceFacts(f"{versions}, sdpa, {str(dtype).removeprefix('torch.')}")
        scorers = {}
        if isinstance(source.head.decoder, heads.RerankDecoder):
            scorers = load_file(source.folder / task.RERANK_HEADS_FILE)
        return cls(
            model.to(dtype).eval(), source.head, facts, {name: value.to(dtype) for name, value in scorers.items()}
        )

    @contextlib.contextmanager
    def unseen(self, pads: int) -> Iterator[None]:
        """Take so many tokens at the end of every row for padding: the mask hides them."""
        self._unseen = pads
        try:
            yield
        finally:
            self._unseen = 0

    def answer(self, rows: Sequence[tuple[int, ...]]) -> list[reference.Answer]:
        """Answer each row of token ids on its own tokens, unpadded.

        Returns:
            For each row its outputs by name, without the batch dimension: (C,), (T, C), (H,) or ().
        """
        with self._threads():
            return self._answer(rows)

    def states(
        self, rows: Sequence[tuple[int, ...]], sketch: NDArray[np.float32] | None = None
    ) -> list[list[NDArray[np.float64]]]:
        """Give each row's hidden states after each layer, (T, H), the last after the final norm.

        Args:
            rows: Token ids.
            sketch: (H, S) projections of the states to give instead, where the states themselves would not fit.
        """
        found = []
        with self._threads(), torch.inference_mode():
            for row in rows:
                input_ids = torch.tensor([row])
                states = self._hidden_states(input_ids, torch.ones_like(input_ids))
                found.append([_projected(state[0], sketch) for state in states[1:]])
        return found

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        before = torch.get_num_threads()
        if self._model.num_parameters() < SINGLE_THREAD_BELOW:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _answer(self, rows: Sequence[tuple[int, ...]]) -> list[reference.Answer]:
        answers: dict[int, reference.Answer] = {}
        by_length: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            by_length.setdefault(len(row), []).append(index)
        for indices in by_length.values():
            for start in range(0, len(indices), ROWS_AT_ONCE):
                chunk = indices[start : start + ROWS_AT_ONCE]
                outputs = self._forward(torch.tensor([rows[index] for index in chunk]))
                for position, index in enumerate(chunk):
                    answers[index] = {name: np.asarray(values[position]) for name, values in outputs.items()}
        return [answers[index] for index in range(len(rows))]

    def _forward(self, input_ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
        with torch.inference_mode():
            mask = torch.ones_like(input_ids)
            mask[:, mask.shape[1] - self._unseen :] = 0
            match self._head.decoder:
                case heads.EmbeddingDecoder(exits=exits):
                    states = self._hidden_states(input_ids, mask)
                    return {
                        contract.embedding_output(layer): self._pooled(states[layer].double(), by_mean=True).numpy()
                        for layer in exits
                    }
                case heads.RerankDecoder() as decoder:
                    return self._score(decoder, self._hidden_states(input_ids, mask))
                case _:
                    logits = self._model(input_ids=input_ids, attention_mask=mask).logits
                    return {contract.LOGITS: logits.double().numpy()}

    def _pooled(self, states: torch.Tensor, *, by_mean: bool) -> torch.Tensor:
        """Pool (B, T, H) states to (B, H), by the tokens that are seen."""
        if by_mean == self._is_pooled_otherwise:
            return states[:, self._first]
        return states[:, : states.shape[1] - self._unseen].mean(dim=1)

    def _hidden_states(self, input_ids: torch.Tensor, mask: torch.Tensor) -> Sequence[torch.Tensor]:
        """Give (B, T, H) states: after the embeddings, after each layer, and for the last after the final norm."""
        return self._model(input_ids=input_ids, attention_mask=mask, output_hidden_states=True).hidden_states

    def _score(self, decoder: heads.RerankDecoder, states: Sequence[torch.Tensor]) -> dict[str, NDArray[np.float64]]:
        """Score the first token at each exit, after the final norm and cut to each dimension."""
        found = {}
        for layer in decoder.exits:
            first = self._pooled(states[layer], by_mean=False)
            if layer < decoder.exits[-1]:
                first = self._model.final_norm(first)
            for size in decoder.dimensions:
                weight = {key: self._scorers[f"heads.layer_{layer}_dim_{size}.{key}"] for key in SCORER_TENSORS}
                inner = first[:, :size] @ weight["dense.weight"].T + weight["dense.bias"]
                inner = 0.5 * inner * (1.0 + torch.erf(inner / math.sqrt(2.0)))
                logit = inner @ weight["out.weight"][0] + weight["out.bias"]
                found[contract.score_output(layer, size)] = logit.double().numpy()
        return found


def _projected(state: torch.Tensor, sketch: NDArray[np.float32] | None) -> NDArray[np.float64]:
    wide = state.double().numpy()
    return wide if sketch is None else wide @ sketch.astype(np.float64)


def _check_loading(loading: dict[str, object]) -> None:
    problems = {key: value for key, value in loading.items() if value}
    if problems:
        raise errors.CheckpointError(
            f"weights that do not fit the model: {problems}",
            expected="exactly the tensors of the model",
            where=contract.WEIGHTS_FILE,
            fix="The checkpoint is incomplete or of another architecture; missing tensors would be random.",
        )
