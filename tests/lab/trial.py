"""One trial: a fault is planted in a copy of a bundle, and the gate is asked about it."""

import dataclasses
import functools
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import judging
from lab.catalogue import Scene
from lab.fault import Fault
from lab.sketch import NotApplicable
from lab.workbench import Bench, Dice

from vela.serve import engine

CAUSE_SHOWN = 160  # characters of a cause that a row keeps


@dataclass(frozen=True, slots=True)
class Ground:
    """Where finished bundles and their checkpoints lie, each in a folder by its sample's name; read only."""

    bundles: Path
    checkpoints: Path


@dataclass(frozen=True, slots=True)
class Row:
    """What a trial gave.

    Attributes:
        fault: The fault's name.
        family: Its family.
        scene: Where it was planted.
        drawn: What was drawn for it; why it has no place there, where it has none.
        is_planted: Whether it has a place there.
        outcome: What became of it; None where it was not planted.
    """

    fault: str
    family: str
    scene: str
    drawn: str
    is_planted: bool
    outcome: judging.Outcome | None

    @property
    def is_let_through(self) -> bool:
        return self.outcome is not None and self.outcome.is_let_through


def try_fault(
    fault: Fault,
    scene: Scene,
    ground: Ground,
    work: Path,
    judge: judging.Judge,
    seed: int,
    *,
    is_fail_fast: bool = False,
    is_thorough: bool = True,
) -> Row:
    """Plant a fault and judge what it makes of the bundle.

    Args:
        fault: The fault.
        scene: Where.
        ground: Finished bundles.
        work: An empty folder to work in; it is left empty.
        judge: Remembers references between trials.
        seed: Of all that is drawn.
        is_fail_fast: Whether the gate stops after static checks that failed.
        is_thorough: Whether the whole corpus is asked where a share of it let the fault through.
    """
    folder = work / scene.sample
    source = ground.checkpoints / scene.sample
    dice = Dice(seed, f"{fault.name} in {scene}")
    try:
        bench = Bench.of(ground.bundles / scene.sample, scene.graph_id, source, folder, dice)
        drawn = fault.plant(bench)
        if fault.is_published:
            outcome = judging.publish(folder, work / "store")
        else:
            ask = functools.partial(
                judge.judge,
                folder,
                source,
                (scene.graph_id,),
                max_tokens=scene.max_tokens,
                is_fail_fast=is_fail_fast,
                entries=fault.session,
                processes=int(fault.family in ("laws", "engine")),
                session=engine.SessionOptions(threads=fault.threads),
            )
            (outcome,) = ask()
            if outcome.is_let_through and judge.share > 1 and is_thorough:
                (outcome,) = ask(share=1)
    except NotApplicable as reason:
        return Row(fault.name, fault.family, str(scene), str(reason), is_planted=False, outcome=None)
    finally:
        for path in work.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    told = dataclasses.replace(outcome, cause=outcome.cause.replace(f"{work}/", ""))
    return Row(fault.name, fault.family, str(scene), drawn, is_planted=True, outcome=told)
