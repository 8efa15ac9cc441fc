"""Measure one system, or several in rounds, and state what was found in a record; nothing is written or printed."""

import datetime
from collections.abc import Sequence

from vela.verify.latency import corpus, judging, machine, record, rounds, side, subject


def measure_run(
    asked: side.Side,
    requests: corpus.Corpus,
    method: subject.Method,
    limits: record.Limits,
    surroundings: rounds.Surroundings,
) -> record.RunRecord:
    """Ask one system in every phase once."""
    one = subject.Subject(asked, requests, method)
    one.identify()
    before, _ = rounds.measure_load([one], surroundings.meter)
    surroundings.report(f"{asked.url}: {len(requests.requests)} requests in each of {len(method.concurrency)} phases")
    turn = one.take_turn()
    _, load = rounds.measure_load([one], surroundings.meter, before)
    judged = judging.judge_run(turn, limits.answers)
    return record.RunRecord(
        created=_now(),
        machine=machine.describe(),
        corpus=record.CorpusFacts.from_corpus(requests),
        side=_facts(asked),
        limits=limits,
        load=load,
        turn=turn,
        answers=one.given_alone,
        verdict=judged.verdict,
        reasons=judged.reasons,
    )


def measure_rounds(
    sides: Sequence[side.Side],
    requests: corpus.Corpus,
    method: subject.Method,
    limits: record.Limits,
    *,
    schedule: rounds.Schedule,
    surroundings: rounds.Surroundings,
) -> record.RoundsRecord:
    """Ask several systems in turns; the first one is what the others are compared with."""
    subjects = [subject.Subject(asked, requests, method) for asked in sides]
    found = rounds.run_rounds(subjects, schedule, surroundings)
    return summarise(sides, requests, limits, found, {one.asked.name: one.given_alone for one in subjects})


def summarise(
    sides: Sequence[side.Side],
    requests: corpus.Corpus,
    limits: record.Limits,
    found: Sequence[record.Round],
    alone: dict[str, judging.Answers],
) -> record.RoundsRecord:
    """State what rounds say."""
    names = [asked.name for asked in sides]
    facts = record.CorpusFacts.from_corpus(requests)
    comparisons = judging.compare_sides([one for one in found if not one.discarded], names, limits.slower)
    # A side without an answer was not asked, or failed; what failed is said of its turns.
    answering = [name for name in names[1:] if any(alone[name]) and any(alone[names[0]])]
    between = tuple(
        judging.compare_answers(name, alone[name], alone[names[0]], facts.ids, limits.answers) for name in answering
    )
    judged = judging.judge_rounds(found, comparisons, between, limits)
    return record.RoundsRecord(
        created=_now(),
        machine=machine.describe(),
        corpus=facts,
        sides=tuple(_facts(asked) for asked in sides),
        limits=limits,
        rounds=tuple(found),
        comparisons=comparisons,
        between=between,
        answers=alone,
        verdict=judged.verdict,
        reasons=judged.reasons,
    )


def _facts(asked: side.Side) -> record.SideFacts:
    return record.SideFacts(asked.name, asked.url, asked.command, dict(asked.options))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
