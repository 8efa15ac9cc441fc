"""A side of a server: any that speaks the native surface, asked with the job's options spelt out.

Connections are kept alive, one for each caller. What the server refuses for what an input is becomes an answer; what it
refuses for how it was asked, and a server that is gone, end the run: nothing of it may stand for an answer.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vela.graphs import model_table
from vela.verify.parity import connection, inputs, jobs, lines, pairing, side

# Of one input: too long, too large, of another kind; or one on which the server fails, which it says and lives on.
REJECTED = (400, 413, 500)
SERVER_FAILED = 500
PATHS = {"embedding": "/v1/embeddings", "rerank": "/v1/rerank"}


class _HeadCard(msgspec.Struct, frozen=True):
    labels: tuple[str, ...] = ()
    thresholds: tuple[float, ...] | None = None


class _Card(msgspec.Struct, frozen=True):
    """What is read of a model's card; other servers state less."""

    id: str
    repo: str = ""
    revision: str = ""
    manifest_sha256: str = ""
    engine: str = ""
    device: str = ""
    heads: tuple[_HeadCard, ...] = ()

    def __str__(self) -> str:
        manifest = f"manifest {self.manifest_sha256}" if self.manifest_sha256 else ""
        return ", ".join(fact for fact in (self.engine, self.device, manifest) if fact) or "no card"


class _Cards(msgspec.Struct, frozen=True):
    data: tuple[_Card, ...]


@dataclass(slots=True)
class HttpSide:
    """A server's models.

    Attributes:
        server: The server.
        table: The pinned models.
        context: Facts for people.
        cards: Of its models by name; empty where it states none.
    """

    server: connection.Server
    table: model_table.ModelTable
    context: dict[str, str] = field(default_factory=dict)
    cards: dict[str, _Card] | None = None

    @property
    def name(self) -> str:
        """Where it answers."""
        return self.server.url

    def state(self, job: jobs.Job) -> jobs.Job:
        """State what the model's card says; see `side.Side.state`.

        Raises:
            VerificationError: the server has no such model, or one of other labels.
            EngineError: it does not answer.
        """
        name = self._find(job)
        card = self._cards().get(name, _Card(name))
        self.context[f"model {name}"] = str(card)
        head = card.heads[0] if card.heads else _HeadCard()
        revision = card.revision or (f"manifest {card.manifest_sha256[:12]}" if card.manifest_sha256 else "")
        return side.state_labels(job, head.labels, head.thresholds or (), revision)

    def open(self, job: jobs.Job) -> "HttpAnswerer":
        """Give what asks for a job; the server has loaded its models."""
        return HttpAnswerer(self.server, job, self._find(job))

    def close(self) -> None:
        """Close all connections."""
        self.server.close()

    def _find(self, job: jobs.Job) -> str:
        cards = self._cards()
        if not cards:
            return side.names_of(job, self.table)[0]
        named = {card.repo.casefold(): name for name, card in cards.items() if card.repo}
        return named.get(job.model.casefold()) or side.choose(job, self.table, cards, self.server.url)

    def _cards(self) -> dict[str, _Card]:
        if self.cards is None:
            found = self.server.send("GET", "/v1/models")
            if found.status in (401, 403):
                raise self.server.refused(found, "/v1/models")
            try:
                listed = msgspec.json.decode(found.body, type=_Cards).data if found.status == 200 else ()
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                listed = ()  # another server's list; its models are asked for by their own names
            self.cards = {card.id: card for card in listed}
        return self.cards


@dataclass(frozen=True, slots=True)
class HttpAnswerer:
    """Asks one model of a server for one job.

    Attributes:
        server: The server.
        job: What is asked.
        model: Its name there.
    """

    server: connection.Server
    job: jobs.Job
    model: str

    def ask(self, given: inputs.Given) -> side.Call:
        """Ask one input; see `side.Answerer.ask`.

        Raises:
            EngineError: the server is gone, fails, or does not take such requests.
        """
        path = PATHS.get(self.job.kind, "/v1/classify")
        found = self.server.send("POST", path, msgspec.json.encode(self._body(given)))
        if found.status != 200 and found.status not in REJECTED:
            raise self.server.refused(found, path)
        # A quotation mark inside a JSON string is escaped, so these bytes are a field's name.
        is_answered = found.status == 200 and b'"error":' not in found.body
        if found.status == 200 and not is_answered:
            is_answered = self._read(found, path).error is None  # null is no error
        return side.Call(found.latency_ns, lambda: self._read(found, path), is_answered)

    def _body(self, given: inputs.Given) -> dict[str, Any]:
        asked = side.options_of(self.job)
        stated = {"overflow": asked.overflow, "max_tokens": asked.max_tokens, "window": asked.window}
        options = {name: value for name, value in stated.items() if value is not None}
        body: dict[str, Any] = {"model": self.model, "options": options}
        if self.job.kind == "rerank":
            options.pop("overflow", None)  # pairs are always read whole; the surface has no such option for them
            return body | {"query": given.query, "documents": given.documents}
        if self.job.kind == "embedding":
            return body | {"input": [given.text]}
        if asked.return_tokens:
            options["return_tokens"] = True
        if self.job.mode == "grounded":
            return body | {"input": [{"context": given.context, "question": given.question, "answer": given.answer}]}
        return body | {"input": [given.text]}

    def _read(self, found: connection.Response, path: str) -> side.Reply:
        if found.status != 200:
            problem = connection.problem_of(found.body)
            if problem is None:
                raise self.server.failed(f"status {found.status} without an error's code", path)
            if found.status >= SERVER_FAILED and problem.code not in pairing.FAULTS:
                # Whatever another server calls it: it failed, and did not refuse the input.
                problem = lines.Problem("internal_error", f"{problem.code}: {problem.message}")
            return side.Reply(error=problem)
        try:
            body = _decode(found.body)
            if self.job.kind == "rerank":
                result: Any = {"results": body["results"]}
            else:
                (result,) = body["data" if self.job.kind == "embedding" else "results"]
            if isinstance(result, dict) and result.get("error") is not None:
                return side.Reply(error=msgspec.convert(result["error"], lines.Problem))
            msgspec.convert(result, lines.RESULTS[self.job.kind])  # a reader takes nothing else
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as cause:
            raise self.server.failed(f"an answer of another form ({type(cause).__name__}: {cause})", path) from cause
        return side.Reply(result)


def _decode(body: bytes) -> Any:
    """Decode an answer; one with NaN, which JSON does not have, is an answer too, and a wrong one."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError):
        pass
    value = json.loads(body)
    msgspec.json.encode(value)  # half of a surrogate pair, or a whole number without end, could not be written
    return value
