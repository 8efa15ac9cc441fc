"""A tiny pinned model on a Hub of this machine, and a client with an empty cache that never really waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import hub_server
import msgspec

from vela.export import hub
from vela.graphs import digests, model_table

NAMES = ("config.json", "tokenizer.json", "model.safetensors")  # in the order in which they are fetched
WEIGHTS = "model.safetensors"
REVISION = "0123456789abcdef" * 2 + "01234567"
REPOSITORY = "someone/Tiny-Shield"


def content_of(name: str) -> bytes:
    """Give a file's content."""
    return name.encode() * (100_000 if name == WEIGHTS else 10)


@dataclass(slots=True)
class Case:
    """A model, the Hub that serves it, and who fetches it.

    Attributes:
        entry: The model's pins.
        source: A folder with its files.
        server: The Hub.
        client: Who fetches.
        waited: How long the client was to wait, each time.
        said: What the client told.
    """

    entry: model_table.ModelEntry
    source: Path
    server: hub_server.HubServer
    client: hub.Hub
    waited: list[float]
    said: list[str] = field(default_factory=list)

    @property
    def cache(self) -> Path:
        """The client's cache."""
        return self.client.cache or Path()

    @property
    def table(self) -> model_table.ModelTable:
        """A table of this model."""
        return model_table.ModelTable(1, "a test", (self.entry,))

    def fetch(self, endpoint: str | None = None) -> Path:
        """Fetch the model, check it, and give its folder."""
        client = replace(self.client, endpoint=endpoint) if endpoint else self.client
        folder = client.fetch(self.entry, self.said.append)
        model_table.check_checkpoint(folder, self.entry)
        return folder

    def leftovers(self) -> list[str]:
        """Name whatever is neither a right content nor a link to one."""
        files = [path for path in self.cache.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
        return [path.name for path in files if digests.sha256_of_file(path) not in {path.name, path.resolve().name}]


@contextmanager
def opened(folder: Path) -> Iterator[Case]:
    """Serve the model until the block ends."""
    source = folder / "source"
    source.mkdir()
    for name in NAMES:
        (source / name).write_bytes(content_of(name))
    files = {name: digests.sha256_of_file(source / name) for name in sorted(NAMES)}
    shipped = model_table.find_model("shield")
    entry = msgspec.structs.replace(shipped, repository=REPOSITORY, revision=REVISION, files=files)
    waited: list[float] = []
    with hub_server.serving() as server:
        server.put(entry, source)
        client = hub.Hub(server.address, folder / "cache", waited.append, stalled_s=0.3)
        yield Case(entry, source, server, client, waited)
