"""One request's bookkeeping: how long each stage took, and what the response's headers say of it."""

import asyncio
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal, Self
from urllib.parse import quote

from vela.serve.batching import BatchedForward
from vela.serve.forward import Forward
from vela.serve.job import Job
from vela.serve.model import ServedModel

Stage = Literal["parse", "tokenize", "queue", "forward", "post", "serialize"]
STAGES: tuple[Stage, ...] = ("parse", "tokenize", "queue", "forward", "post", "serialize")


TIMING = ", ".join(f"{stage};dur=%.3f" for stage in (*STAGES, "total"))
Header = tuple[bytes, bytes]


@functools.lru_cache(maxsize=256)
def _headers_of(name: str, sha256: str, provider: str) -> list[Header]:
    """Say who answers; headers hold no other letters than the quoted ones."""
    return [
        (b"x-vela-model", quote(name).encode()),
        (b"x-vela-model-sha256", sha256.encode()),
        (b"x-vela-ep", provider.encode()),
    ]


class Exchange:
    """A request under way, from its first byte to its response's headers.

    Args:
        watch_client: Starts a task that ends when the client has gone; the request's body must have been read.
        request_id: As given or made.

    Attributes:
        when_sent: What is done when the answer is on its way, such as counting it.
    """

    def __init__(self, watch_client: Callable[[], "asyncio.Task[None]"], request_id: str = "") -> None:
        self.watch_client = watch_client
        self.request_id = request_id
        self._begun_s = self._marked_s = time.monotonic()
        self._deadline_ms: float | None = None
        self._stages_s: dict[Stage, float] = {}
        self._model: ServedModel | None = None
        self._said: list[Header] = []
        self._retry_after_s = 0.0
        self.when_sent: list[Callable[[], None]] = []
        self.model_name = ""
        self.graph_ids: list[str] = []
        self.truncated: bool | None = None

    def mark(self, stage: Stage) -> None:
        """Close a stage: it took the time since the last mark."""
        now = time.monotonic()
        self._stages_s[stage] = self._stages_s.get(stage, 0.0) + now - self._marked_s
        self._marked_s = now

    def mark_jobs(self, jobs: Sequence[Job]) -> None:
        """Close the stages queue and forward: forward is what the jobs ran, queue is the rest since the last mark."""
        now = time.monotonic()
        forward_s = sum([job.finished_s - job.started_s for job in jobs if job.finished_s])
        self._stages_s["forward"] = forward_s
        self._stages_s["queue"] = max(0.0, now - self._marked_s - forward_s)
        self._marked_s = now

    def left_s(self, deadline_ms: float | None) -> float | None:
        """Give the seconds that are left of a deadline that counts from the request's arrival; None without one."""
        given = [deadline for deadline in (deadline_ms, self._deadline_ms) if deadline is not None]
        return max(0.0, min(given) / 1000 - self.elapsed_s()) if given else None

    def part(self, deadline_ms: float | None) -> Self:
        """Begin the bookkeeping of a part of this request, which has no more time than the whole."""
        part = type(self)(self.watch_client)
        part._begun_s, part._deadline_ms = self._begun_s, deadline_ms
        return part

    def sum_up(self, parts: Sequence[Self]) -> None:
        """Take over what parts did: their stages' times together, which may be more than the time that passed."""
        for part in parts:
            for stage, seconds in part._stages_s.items():
                self._stages_s[stage] = self._stages_s.get(stage, 0.0) + seconds
            self.graph_ids = sorted({*self.graph_ids, *part.graph_ids})
            self.when_sent += part.when_sent
            self.ask_later(part._retry_after_s)
        names = {name for part in parts for name in [part.model_name] if name}
        self.model_name = names.pop() if len(names) == 1 else ""
        self.truncated = any(part.truncated for part in parts)
        self._marked_s = time.monotonic()

    def describe_model(self, model: ServedModel) -> None:
        """Note who answers."""
        self.model_name, self._model = model.name, model

    def describe_forwards(self, forwards: Sequence[Forward | BatchedForward], *, truncated: bool) -> None:
        """Note which graphs run and whether any input was cut, and say in the headers what is known by now.

        It is called while the forwards run: after them, every step is met with the caches that they left cold.
        """
        ids = {forward.graph_id for forward in forwards}
        self.graph_ids = sorted(ids) if len(ids) > 1 else list(ids)
        self.truncated = truncated
        self._said = self._say()

    def ask_later(self, seconds: float) -> None:
        """Say in the headers when there will be room."""
        self._retry_after_s = max(self._retry_after_s, seconds)

    def elapsed_s(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self._begun_s

    def timing_ms(self) -> dict[str, float]:
        """Give milliseconds by stage, in order, with the total so far."""
        stages = self._stages_s
        timing: dict[str, float] = {stage: round(stages.get(stage, 0.0) * 1000, 3) for stage in STAGES}
        timing["total"] = round(self.elapsed_s() * 1000, 3)
        return timing

    def headers(self) -> list[Header]:
        """Give the response's headers."""
        stages = self._stages_s
        timing = TIMING % (*[stages.get(stage, 0.0) * 1000 for stage in STAGES], self.elapsed_s() * 1000)
        said = self._said or self._say()
        lines = [*said, (b"server-timing", timing.encode())]
        if self._retry_after_s:
            lines.append((b"retry-after", str(math.ceil(self._retry_after_s)).encode()))
        return lines

    def _say(self) -> list[Header]:
        said = [(b"x-request-id", self.request_id.encode())]
        if model := self._model:
            said += _headers_of(model.name, model.bundle.manifest.model.model_sha256, model.device.provider)
        if self.truncated is not None:
            said.append((b"x-vela-bucket", ",".join(self.graph_ids).encode()))
            said.append((b"x-vela-truncated", b"1" if self.truncated else b"0"))
        return said
