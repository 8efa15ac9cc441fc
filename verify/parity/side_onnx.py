"""A side of graphs that Vela did not write, such as a published `onnx/model.onnx`, each beside its checkpoint.

The checkpoint gives the tokenizer, the head and its rules. The graph is fed as the router's binding feeds it: padded
to the length that it is fixed to, pads masked, token types of zero and positions from 0 on where it takes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vela.graphs import digests, errors, model_table
from vela.serve import device as devices
from vela.serve import engine, host
from vela.serve.runtime import installed_build
from vela.verify import checkpoint, foreign, foreign_session, graph_file
from vela.verify.parity import jobs, side, side_checkpoint


@dataclass(frozen=True, slots=True)
class Graphs:
    """Graph files by model.

    Attributes:
        files: By any of a model's names.
        table: The pinned models.
        device: Where they run.
    """

    files: Mapping[str, Path]
    table: model_table.ModelTable
    device: devices.Device = devices.CPU

    def side(self, root: Path) -> side_checkpoint.CheckpointSide:
        """Give the side of these graphs, with the checkpoints of a folder."""
        context = {"device": str(self.device), "threads": str(host.available_cores())}
        context |= {f"graph {name}": f"sha256 {digests.sha256_of_file(path)}" for name, path in self.files.items()}
        name = f"onnx {', '.join(sorted({path.name for path in self.files.values()}))} {' '.join(installed_build())}"
        return side_checkpoint.CheckpointSide(name, root, self.table, self.load, context)

    def load(self, source: checkpoint.Checkpoint, job: jobs.Job) -> side_checkpoint.Forward:
        """Load a job's graph.

        Raises:
            VerificationError: no graph was named for the job's model.
            GraphError: the graph is none of this checkpoint's head.
            EngineError: it does not load.
        """
        path = self.files[side.choose(job, self.table, self.files, "--graph")]
        interface = foreign.read_foreign(graph_file.GraphFile.read(path), source)
        presented, pad_id = interface.presented, int(source.config["pad_token_id"])
        if presented.sequence is not None and not presented.takes_mask:
            raise errors.GraphError(
                f"a fixed length of {presented.sequence} tokens and no attention_mask",
                expected="a mask, as texts of other lengths have to be padded",
                where=path.name,
                fix="Ask a graph that takes attention_mask, or one of any length.",
            )
        session = foreign_session.ForeignSession.open(interface, self.device, engine.SessionOptions())

        def run(ids: tuple[int, ...], output: str) -> NDArray[np.float32]:
            rows: NDArray[np.float32] = session.run(engine.pad_rows([ids], presented, pad_id))[output]
            return rows[0, ...]

        return side_checkpoint.Forward(run, presented.sequence)
