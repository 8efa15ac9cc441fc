"""Make a bundle's golden answers: for the gate after a pass, and for `vela golden write`, by the same rules.

The gate has the checkpoint's answers and its mutants' at hand. `write_anew` asks for them again, for a bundle whose
file was lost, or to have fewer probes; it rests on the verdicts that are there and changes none.
Equal inputs give equal bytes: nothing in the file says when or where it was made.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vela.graphs import attestation, bundle, digests, errors, golden, verdicts
from vela.serve import golden_asking
from vela.serve.deployment import Deployment
from vela.verify import checkpoint, journal, meter, mutants, plan, probes, recording, schedule
from vela.verify import ground as grounds
from vela.verify.options import GateOptions

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where golden answers come from.

    Attributes:
        checkpoint_sha256: Over the listing of the files of the checkpoint that answered.
        command: What was called, without names of folders.
        most: How many probes at most.
    """

    checkpoint_sha256: str
    command: str
    most: int = golden.MOST_PROBES


def make(opened: bundle.Bundle, ground: grounds.Ground, measured: mutants.Mutants, origin: Origin) -> golden.Golden:
    """Choose probes and make a bundle's golden answers from them.

    Args:
        opened: The bundle that they are about.
        ground: The checkpoint's answers and its own noise.
        measured: What mutants of it answered.
        origin: Where they come from.
    """
    sizes = [graph.sequence for graph in opened.exact_graphs() if graph.sequence is not None]
    chosen = probes.choose_probes(measured, ground.answers, most=origin.most, shortest=min(sizes, default=None))
    facts = {
        "manifest_sha256": opened.manifest_sha256,
        "checkpoint_sha256": origin.checkpoint_sha256,
        "reference": ground.description,
        "command": origin.command,
    }
    return probes.make_golden(chosen, ground.answers, ground.noise, facts, recording.tool_versions())


def write_anew(
    opened: bundle.Bundle,
    source: checkpoint.Checkpoint,
    make_references: Callable[[], grounds.References],
    most: int | None,
    progress: Progress,
) -> golden.Golden:
    """Ask the checkpoint and its mutants, and write golden answers that the bundle's own graphs give.

    Args:
        opened: A bundle that passed on the CPU; its files need not be trustworthy.
        source: The checkpoint that it was judged against, named apart from it.
        make_references: Loads the reference; not called where the bundle is refused.
        most: How many probes at most; None leaves it to the gate's rule.
        progress: Told what is being done.

    Raises:
        NotVerified: a graph has no pass, or was judged against another checkpoint.
        DigestMismatch: a file is not the one that the manifest names.
        GoldenMismatch: a graph does not give the answers; nothing was written.
    """
    checkpoint_sha256 = digests.digest_of_listing(source.listing())
    require_proven(opened, checkpoint_sha256)
    ground = _lay(opened, source, make_references(), progress)
    if ground.mutants is None:
        raise errors.NothingCompared(
            "a reference without mutants",
            expected="mutants of the checkpoint, from which probes are chosen",
            where=opened.folder.name,
            fix="Write golden answers with the PyTorch reference.",
        )
    command = "vela golden write" if most is None else f"vela golden write --probes {most}"
    origin = Origin(checkpoint_sha256, command, most or golden.MOST_PROBES)
    content = make(opened, ground, ground.mutants, origin)
    progress(f"asking {opened.manifest.model.name} its {len(content.probes)} probes")
    golden_asking.require_matched(golden_asking.check_answers(opened, content, Deployment()))
    golden.write(opened, content)
    _restate(opened, progress)
    return content


def require_proven(opened: bundle.Bundle, checkpoint_sha256: str) -> None:
    """Refuse a bundle that did not pass as it lies there, against this checkpoint.

    Raises:
        NotVerified: a graph has no pass on the CPU, or was judged against another checkpoint.
        DigestMismatch: a file is not the one that the manifest names.
    """
    evidence = verdicts.read_all_evidence(opened)
    verdicts.check_publishable(opened, evidence)
    opened.check_files()
    for found in verdicts.passing(item.record for item in evidence):
        if found.checkpoint_sha256 != checkpoint_sha256:
            raise errors.NotVerified(
                f"a checkpoint whose files have the digest {checkpoint_sha256}",
                expected=f"{found.checkpoint_sha256}, which {found.graph_id!r} was judged against",
                where=f"--checkpoint of {opened.manifest.model.name}",
                fix="Name the checkpoint that `vela verify-graph` judged the bundle by, or judge it by this one first.",
            )


def _restate(opened: bundle.Bundle, progress: Progress) -> None:
    """Let the statement over the bundle's files be about the new file too, as far as nobody signed it."""
    try:
        attestation.refresh(opened)
    except errors.NotVerified as problem:
        progress(f"the answers are written; {problem}")


def _lay(
    opened: bundle.Bundle, source: checkpoint.Checkpoint, references: grounds.References, progress: Progress
) -> grounds.Ground:
    """Ask what the gate asks of a checkpoint before it judges graphs, but for its corpus."""
    prepared = schedule.Preparation.make(opened, source, opened.exact_graphs(), references, GateOptions())
    expected = prepared.durations()
    seconds = expected.of_noise + expected.of_mutants + sum(map(expected.of_case, prepared.pool.cases))
    asked = sum(not mutant.facts.equal_because for mutant in references.mutants)
    said = plan.say_seconds(seconds)
    progress(f"asking the checkpoint and {asked} mutants {len(prepared.pool.cases)} inputs in about {said}")
    gauge = meter.Meter(progress, seconds)
    asking = grounds.Asking(references, prepared.seconds_of_case, journal.Journal(None, is_resumed=False), gauge)
    return asking.lay((), prepared.noise_cases, prepared.pool)
