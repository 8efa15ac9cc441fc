"""Release checkpoints: export, verify and publish, in one process so that equal architectures share a trace.

The quickstart and the tests use it; `vela release` will add resuming, a ledger and several engines.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vela.export import bundle_writer, trace, verification
from vela.graphs import errors, record
from vela.graphs import store as stores
from vela.verify import checkpoint, verdict
from vela.verify.options import GateOptions

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Released:
    """What became of one checkpoint.

    Attributes:
        name: The model.
        bundle: Its bundle folder; None where its form is not exported yet.
        records: The gate's records, in graph order.
        reason: Why it was left out; empty where it was not.
    """

    name: str
    bundle: Path | None
    records: tuple[record.Record, ...]
    reason: str = ""


def release(
    checkpoints: Sequence[Path],
    work: Path,
    store: Path,
    buckets: tuple[int, ...],
    options: GateOptions,
    progress: Progress,
) -> list[Released]:
    """Export, verify and publish checkpoints; a form that is not finished is left out and says so.

    Args:
        checkpoints: Checkpoint folders; a model is named after its folder.
        work: Where bundles are made; older ones of the same names are replaced.
        store: Where passing bundles are published.
        buckets: Token lengths of the fixed graphs.
        options: Of the gate.
        progress: Told what is being done.

    Raises:
        VerificationFailed: a graph failed; models before it are published, it is not.
    """
    traces = trace.TraceCache()
    opened_store = stores.Store.create_or_open(store)
    released = []
    for folder in checkpoints:
        source = checkpoint.Checkpoint.read(folder)
        out = work / folder.name
        shutil.rmtree(out, ignore_errors=True)
        plan = bundle_writer.ExportPlan(folder.name, buckets=buckets)
        try:
            bundle_writer.export_bundle(source, out, plan, traces, progress)
        except errors.ExportError as problem:
            released.append(Released(folder.name, None, (), str(problem)))
            continue
        records = verification.verify_folder(out, folder, options, progress)
        verdict.require_passed(records)
        opened_store.publish(out)
        released.append(Released(folder.name, out, tuple(records)))
    return released
