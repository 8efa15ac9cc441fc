"""A side of checkpoints: texts are read, windowed and decoded by serve's own rules, and only the forward is another's.

So a difference between such a side and a bundle is one of numbers, and not of how a text was cut. PyTorch's forward
lives in export/parity_side.py, a foreign graph's in side_onnx.py.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract, errors, heads, model_table
from vela.serve import answers, assembly, host, policy
from vela.serve.forward import item_error
from vela.serve.reading import Item, Reading, read_items
from vela.serve.tokenization import Framed, Tokenizer
from vela.verify import checkpoint
from vela.verify.parity import jobs, side

# Runs one row of token ids: (C,), (T, C), (H,) or () of the output that is named.
Run = Callable[[tuple[int, ...], str], NDArray[np.floating]]


@dataclass(frozen=True, slots=True)
class Forward:
    """Whatever computes in a checkpoint's place.

    Attributes:
        run: Runs one row.
        longest: Most tokens of a row; None where the head alone limits it.
    """

    run: Run
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointModel:
    """A checkpoint that answers.

    Attributes:
        head: Its head.
        tokenizer: Its own.
        forward: What computes.
    """

    head: heads.Head
    tokenizer: Tokenizer
    forward: Forward

    @classmethod
    def of(cls, source: checkpoint.Checkpoint, forward: Forward) -> "CheckpointModel":
        """Join a checkpoint's tokenizer and head with what computes."""
        pad_id = int(source.config["pad_token_id"])
        tokenizer = Tokenizer.from_file(source.folder / "tokenizer.json", pad_id=pad_id)
        return cls(source.head, tokenizer, forward)

    def settle(self, options: policy.Options) -> policy.Policy:
        """Settle what holds.

        Raises:
            InvalidRequest: an option does not suit this model.
        """
        is_text = self.head.inputs == "text"
        special = self.tokenizer.special_count if is_text else self.tokenizer.pair_special_count
        limit = self.head.max_tokens
        capacity = policy.Capacity(min(limit, self.forward.longest or limit), special)
        return policy.resolve_policy(options, self.head, capacity)

    def answer(self, items: Sequence[Item], rules: policy.Policy) -> list[answers.Answer | answers.FailedAnswer]:
        """Answer one item after the other, as `question.answer` does of a bundle."""
        found: list[answers.Answer | answers.FailedAnswer] = []
        for index, reading in enumerate(read_items(items, self.head, self.tokenizer, rules)):
            try:
                if isinstance(reading, errors.ItemError):
                    raise reading
                found.append(self._finish(index, reading, rules))
            except errors.ItemError as problem:
                found.append(answers.FailedAnswer.from_error(index, problem))
        return found

    def _finish(self, index: int, reading: Reading, rules: policy.Policy) -> answers.Answer:
        match self.head.decoder:
            case heads.EmbeddingDecoder(exits=exits, dimensions=dimensions):
                outputs = self._run(reading, contract.embedding_output(exits[-1]))
                return assembly.embed(index, reading, outputs, dimensions[0])
            case heads.RerankDecoder(exits=exits, dimensions=dimensions):
                outputs = self._run(reading, contract.score_output(exits[-1], dimensions[0]))
                return assembly.rank(index, reading, outputs)
            case _:
                return assembly.classify(index, reading, self._run(reading, contract.LOGITS), self.head, rules)

    def _run(self, reading: Reading, output: str) -> list[NDArray[np.float32]]:
        return [self._run_row(row, output) for row in reading.rows]

    def _run_row(self, row: Framed, output: str) -> NDArray[np.float32]:
        """Run a row, and cut out and check what is its content's, as serve does.

        Raises:
            ItemError: the run failed, or gave a number that is none.
        """
        try:
            values = self.forward.run(row.ids, output).astype(np.float32)
        except errors.EngineError as cause:
            raise item_error("unavailable", cause) from cause
        except errors.ShapeMismatch as cause:
            raise item_error("invalid_model_output", cause) from cause
        own = values[row.first : row.first + row.count] if values.ndim == 2 else values
        if not np.isfinite(own).all():
            raise errors.ItemError(
                "invalid_model_output",
                f"{output} with values that are not finite",
                expected="finite values",
                where="the forward pass",
                fix="The model or its graph is broken for this input.",
            )
        return own


# Loads what computes a job in a checkpoint's place.
Load = Callable[[checkpoint.Checkpoint, jobs.Job], Forward]


@dataclass(slots=True)
class CheckpointSide:
    """Checkpoints of one folder, each in `<root>/<name>`; one is loaded at a time.

    Attributes:
        name: Who computes.
        root: The folder.
        table: The pinned models.
        load: Loads what computes.
        context: Facts for people.
        reading: Checkpoints that were read already, by folder name.
    """

    name: str
    root: Path
    table: model_table.ModelTable
    load: Load
    context: dict[str, str] = field(default_factory=dict)
    reading: dict[str, checkpoint.Checkpoint] = field(default_factory=dict)
    _loaded: tuple[str, CheckpointModel] | None = None

    def state(self, job: jobs.Job) -> jobs.Job:
        """State what the checkpoint's files say; see `side.Side.state`. All of them are hashed.

        Raises:
            VerificationError: there is no checkpoint of the job's model, or of another kind.
            CheckpointError: it cannot be read.
        """
        name = self._find(job)
        if name not in self.reading:
            self.reading[name] = checkpoint.Checkpoint.read(self.root / name, table=self.table)
            listing = self.reading[name].listing()
            self.context[f"model {name}"] = side.revision_of(listing, side.find_entry(self.table, job.model))
        return side.state_head(job, self.reading[name].head, self.context[f"model {name}"])

    def open(self, job: jobs.Job) -> side.LocalAnswerer:
        """Load what computes the job.

        Raises:
            CheckpointError, EngineError: it does not load.
            InvalidRequest: the model is not asked in that way.
        """
        model = self._load(self._find(job), job)
        rules = model.settle(side.options_of(job))
        return side.LocalAnswerer(job, lambda items: model.answer(items, rules), threading.Lock())

    def close(self) -> None:
        """Let the loaded model go."""
        self._loaded = None

    def _find(self, job: jobs.Job) -> str:
        folders = [path.parent.name for path in self.root.glob("*/config.json")]
        return side.choose(job, self.table, folders, str(self.root))

    def _load(self, name: str, job: jobs.Job) -> CheckpointModel:
        if self._loaded is None or self._loaded[0] != name:
            self._loaded = None  # two models of a gigabyte each need not be there at once
            host.give_back_memory()
            source = self.reading[name]
            self._loaded = name, CheckpointModel.of(source, self.load(source, job))
        return self._loaded[1]
