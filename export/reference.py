"""The PyTorch reference: a fresh model from the checkpoint, SDPA, no hook, no patch, no padding.

The gate judges graphs against it. It shares no module with what was traced: its own `from_pretrained`, Transformers'
own SDPA attention, one length at a time so that no mask is involved, and pooling written again in numpy.
"""

import contextlib
import importlib.metadata
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.utils import logging

from vela.export import effective, forms
from vela.graphs import contract, errors, heads
from vela.verify import checkpoint, reference

ROWS_AT_ONCE = 8  # rows of equal length share a forward pass; more would not be faster on a CPU
# Below this many weights one thread is faster: entering a parallel region costs more than it saves. Measured on a
# 0.8M checkpoint, 728 inputs of 2 to 512 tokens: 3.9 s with one thread, 26 s with two.
SINGLE_THREAD_BELOW = 20_000_000


class PyTorchReference:
    """Answers of the checkpoint itself.

    Attributes:
        facts: What a record says of it.
    """

    def __init__(self, model: PreTrainedModel, head: heads.Head, facts: reference.ReferenceFacts) -> None:
        self._model = model
        self._head = head
        self.facts = facts

    @classmethod
    def from_checkpoint(cls, source: checkpoint.Checkpoint, dtype: torch.dtype = torch.float32) -> Self:
        """Load a checkpoint afresh and check that it was read as its config says.

        Raises:
            CheckpointError: tensors are missing or left over, or the model is not what config.json states.
        """
        logging.disable_progress_bar()  # Transformers draws one for each load, over whatever progress Vela prints
        model, loading = forms.model_class(source.head).from_pretrained(
            source.folder, attn_implementation="sdpa", dtype=torch.float32, output_loading_info=True
        )
        _check_loading(loading)
        effective.check_effective(model, source.architecture)
        versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers"))
        facts = reference.ReferenceFacts(f"{versions}, sdpa, {str(dtype).removeprefix('torch.')}")
        return cls(model.to(dtype).eval(), source.head, facts)

    def answer(self, rows: Sequence[tuple[int, ...]]) -> list[reference.Answer]:
        """Answer each row of token ids on its own tokens, unpadded.

        Returns:
            For each row its outputs by name, without the batch dimension: (C,), (T, C) or (H,).
        """
        with self._threads():
            return self._answer(rows)

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
                    answers[index] = {name: values[position] for name, values in outputs.items()}
        return [answers[index] for index in range(len(rows))]

    def _forward(self, input_ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
        with torch.inference_mode():
            if not isinstance(self._head.decoder, heads.EmbeddingDecoder):
                logits = self._model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids)).logits
                return {contract.LOGITS: logits.double().numpy()}
            states = self._model(
                input_ids=input_ids, attention_mask=torch.ones_like(input_ids), output_hidden_states=True
            ).hidden_states
        pooled = {}
        for layer in self._head.decoder.exits:
            pooled[contract.embedding_output(layer)] = states[layer].double().numpy().mean(axis=1)
        return pooled


def _check_loading(loading: dict[str, object]) -> None:
    problems = {key: value for key, value in loading.items() if value}
    if problems:
        raise errors.CheckpointError(
            f"weights that do not fit the model: {problems}",
            expected="exactly the tensors of the model",
            where=contract.WEIGHTS_FILE,
            fix="The checkpoint is incomplete or of another architecture; missing tensors would be random.",
        )
