"""Make a jobs file: what the models of the family are asked, as the router's team asks them.

Texts are the project's own corpus and a user's; long documents and grounded triples are made from them, in an order
that depends on nothing but them. The jobs are those of upstream's two recipes, the router's defaults on the CPU and its
recipe for AMD, with two kinds more: embeddings and reranking.
Source: upstream's legacy_parity.py, its jobs and what its inputs are made like (reference/vela-family.md §3).
"""

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from vela.graphs import durable, errors, heads, model_table, task
from vela.verify import rows
from vela.verify.parity import jobs

Recipe = Literal["cpu", "amd"]
AMD_TOKENS = 8192  # of the fixed graphs that the router's recipe for AMD runs
LONG_PROMPTS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384)
TRIPLES, TRIPLE_PROMPTS, ANSWER_PROMPTS = 60, (3, 40), (1, 4)
LONG_TRIPLES, LONG_TRIPLE_PROMPTS = 4, 400
SEED = 0

Input = dict[str, Any]
Item = TypeVar("Item")


class Spec(msgspec.Struct, frozen=True, rename="pascal"):
    """One job in upstream's spelling."""

    job: str
    repo: str
    revision: str
    mode: jobs.Mode
    max_tokens: int
    overflow: heads.Overflow
    window_size: int
    window_overlap: int
    inputs: list[Input]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a jobs file is made of.

    Attributes:
        recipe: Whose jobs.
        table: The models.
        models: Names of those that are asked; all that the table supports where none is given.
        corpora: A user's texts, asked after the project's.
        most: Inputs of a job at most; None for all.
    """

    recipe: Recipe
    table: model_table.ModelTable
    models: tuple[str, ...] = ()
    corpora: tuple[Path, ...] = ()
    most: int | None = None


def make_jobs(wanted: Wanted) -> list[Spec]:
    """Make the jobs with their inputs.

    Raises:
        CheckpointError: the table has no model of a name.
        VerificationError: a user's texts cannot be used.
    """
    entries = [wanted.table.find(name) for name in wanted.models] or list(wanted.table.supported)
    made = {kind: thin(found, wanted.most) for kind, found in make_inputs(wanted.corpora).items()}
    unique = {entry.name: entry for entry in entries}.values()
    listed = [spec for entry in unique for spec in _specs(entry, wanted.recipe, made)]
    if not listed:
        raise errors.NothingCompared(
            "a table without a supported model",
            expected="models to ask",
            where="--table",
            fix="`vela models --table FILE` lists what it has.",
        )
    return listed


def write_jobs(specs: Sequence[Spec], path: Path) -> str:
    """Write a jobs file in one step, and give the digest of its inputs.

    Raises:
        VerificationError: there is no such folder, or the file is more than a reader takes.
    """
    content = msgspec.json.encode(specs) + b"\n"
    if len(content) > jobs.JOBS_LIMIT_BYTES:
        raise jobs.unusable(path, f"{len(content):,} bytes of inputs")
    if not path.parent.is_dir():
        raise errors.VerificationError(
            f"no folder {path.parent}", expected="a folder to write to", where=path.name, fix="Make it first."
        )
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    durable.write_file(draft, content)
    durable.rename(draft, path)
    return jobs.Plan.from_file(path).inputs_sha256


def make_inputs(corpora: Sequence[Path] = ()) -> dict[str, list[Input]]:
    """Make all inputs, by what a model reads: texts, grounded triples, and queries with documents.

    Raises:
        VerificationError: a user's texts cannot be used, or share an id with others.
    """
    own = rows.read_corpus()
    users = [row for path in corpora for row in rows.read_corpus(path).texts[len(own.texts) :]]
    texts = [{"id": row.id, "text": row.text} for row in (*own.texts, *users)]
    choice = random.Random(SEED)
    prompts = [row["text"] for row in texts]
    texts += _long_texts(choice, prompts)
    triples: list[Input] = [msgspec.to_builtins(row) for row in own.grounded]
    triples += _triples(choice, prompts)
    pairs: list[Input] = [msgspec.to_builtins(row) for row in own.pairs]
    for found in (texts, triples, pairs):
        _require_unique([str(one["id"]) for one in found])
    return {"text": texts, "grounded": triples, "pair": pairs}


def thin(found: Sequence[Item], most: int | None) -> list[Item]:
    """Keep so many at most, evenly spread, the first and the last among them."""
    if most is None or most >= len(found):
        return list(found)
    step = (len(found) - 1) / max(1, most - 1)
    return [found[round(place * step)] for place in range(most)]


def _long_texts(choice: random.Random, prompts: Sequence[str]) -> Iterator[Input]:
    for count in LONG_PROMPTS:
        picked = choice.sample(prompts, k=min(count, len(prompts)))
        yield {"id": f"long-{count:03d}", "text": "\n".join(picked)}


def _triples(choice: random.Random, prompts: Sequence[str]) -> Iterator[Input]:
    """Make triples whose answers have nothing to do with their contexts, most short and some very long."""
    for index in range(TRIPLES + LONG_TRIPLES):
        is_long = index >= TRIPLES
        count = LONG_TRIPLE_PROMPTS if is_long else choice.randint(*TRIPLE_PROMPTS)
        context = " ".join(choice.sample(prompts, k=min(count, len(prompts))))
        question = choice.choice(prompts)
        answer = " ".join(choice.sample(prompts, k=1 if is_long else choice.randint(*ANSWER_PROMPTS)))
        name = f"made-long-{index - TRIPLES}" if is_long else f"made-{index:02d}"
        yield {"id": name, "context": context, "question": question, "answer": answer}


def _specs(entry: model_table.ModelEntry, recipe: Recipe, made: Mapping[str, list[Input]]) -> Iterator[Spec]:
    """Give the jobs of one model."""
    for job, mode, options in _jobs(entry, recipe):
        window = options.window or (0, 0)
        limit, overflow = options.max_tokens or entry.max_tokens, options.overflow or "reject"
        yield Spec(job, entry.repository, entry.revision, mode, limit, overflow, *window, made[entry.inputs])


def _jobs(entry: model_table.ModelEntry, recipe: Recipe) -> Iterator[tuple[str, jobs.Mode, jobs.Options]]:
    """Say how a recipe asks a model."""
    name, policy = entry.name.lower(), entry.policy
    if entry.kind == "scores" and task.OPERATING_POINT_FILE in entry.files:
        # What it is asked with is packaged with it; upstream's jobs state the capacity beside that.
        yield name, "operating_point", jobs.Options(policy.max_tokens, "reject")
    elif recipe == "amd":
        yield name, _mode(entry, "reject"), jobs.Options(min(AMD_TOKENS, entry.max_tokens), "reject")
    else:
        window = None if policy.window is None else (policy.window.tokens, policy.window.overlap)
        yield name, _mode(entry, policy.overflow), jobs.Options(policy.max_tokens, policy.overflow, window)
        if entry.kind == "token" and policy.window is not None:
            yield f"{name}_truncate", "tokens", jobs.Options(policy.window.tokens, "truncate")


def _mode(entry: model_table.ModelEntry, overflow: heads.Overflow) -> jobs.Mode:
    match entry.kind:
        case "sequence":
            return "sequence_windows" if overflow == "window" else "sequence"
        case "token" if entry.inputs == "grounded":
            return "grounded"
        case "token":
            return "token_windows" if overflow == "window" else "tokens"
        case "scores" | "embedding" | "rerank":
            return entry.kind


def _require_unique(ids: Sequence[str]) -> None:
    repeated = [one for one, count in Counter(ids).items() if count > 1]
    if repeated:
        raise errors.VerificationError(
            f"the id {repeated[0]!r} twice",
            expected="a name of its own for each input",
            where="--corpus",
            fix="Rename it in one of the files.",
        )
