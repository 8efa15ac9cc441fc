"""Pinned files from a Hub into the Hub's own cache, each compared with its pin before it is given a name there.

huggingface_hub finds hosts, tokens and the cache, and says what an answer means; but it begins a file anew whenever it
was interrupted, waits as long as a server says, and keeps whatever bytes came. A release wants to go on where a line
broke, to end in the time that it has, and never to meet a wrong file again. The names of all files and their digests
are known before, so nothing is listed, and nothing else is fetched.
Source: huggingface_hub 2.4, file_download.py (`_download_to_tmp_and_move`) and utils/_http.py; the cache's layout is
documented at huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from huggingface_hub import constants, get_session, hf_hub_url, hf_raise_for_status
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from vela.graphs import digests, errors, model_table

CONNECT_S, STALLED_S = 10.0, 30.0
TRIES = 4  # of one file within one call, as long as each brings bytes; a broken line mostly holds the next time
LONGEST_WAIT_S = 60.0  # that a Hub may ask for at once; whoever is asked for more runs again later
DEFAULT_WAIT_S = 2.0
TOO_MANY_REQUESTS, PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE = 429, 206, 416
LARGEST_BYTES = 64 << 30  # of a file; the family's weights are 1.2 GB
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Hub:
    """Where pinned models come from.

    Attributes:
        endpoint: The Hub's address; None for the one that huggingface_hub is set to.
        cache: The Hub's cache; None for the one that huggingface_hub is set to.
        sleep: Waits so many seconds.
        stalled_s: Without a byte for so long, a transfer has broken.
    """

    endpoint: str | None = None
    cache: Path | None = None
    sleep: Callable[[float], None] = field(default=time.sleep)
    stalled_s: float = STALLED_S

    def fetch(self, entry: model_table.ModelEntry, progress: Progress) -> Path:
        """Give the folder of a pinned model's files, all of them with the pinned bytes.

        What the cache holds is compared first; what it lacks, or holds otherwise, is fetched. A file that was broken
        off is continued, in this call and in later ones.

        Raises:
            CheckpointError: a file cannot be had with the pinned bytes; what was fetched before it stays.
        """
        place = _Place.of(self.cache or Path(constants.HF_HUB_CACHE), entry)
        for name, sha256 in entry.files.items():
            found = place.digest_of(name)
            if found == sha256:
                continue
            if constants.is_offline_mode():
                raise _offline(found, sha256, place.snapshot / name)
            with _held(place.part(sha256)) as part:
                if not _is(place.blob(sha256), sha256):
                    self._download(entry, name, part, progress)
                    os.replace(part, place.blob(sha256))
                place.point(name, sha256)
        return place.snapshot

    def _download(self, entry: model_table.ModelEntry, name: str, part: Path, progress: Progress) -> None:
        """Bring a file's bytes into `part`, going on from what is there, if that proves to be its beginning."""
        expected, went_on = entry.files[name], part.stat().st_size > 0
        self._gather(entry, name, part, progress)
        found = digests.sha256_of_file(part)
        if found != expected and went_on:
            progress(f"{name}: what an earlier run had gathered was not its beginning")
            os.truncate(part, 0)
            self._gather(entry, name, part, progress)
            found = digests.sha256_of_file(part)
        if found != expected:
            part.unlink()  # or every later attempt would go on from it
            raise errors.CheckpointError(
                f"sha256 {found}",
                expected=f"sha256 {expected}, as pinned",
                where=_where(entry, name),
                fix="The Hub, or something before it, serves other bytes than the pinned ones; they were thrown away. "
                "Run again, and if it stays so, look who altered them.",
            )

    def _gather(self, entry: model_table.ModelEntry, name: str, part: Path, progress: Progress) -> None:
        """Ask until the whole file is there, as long as that leads on."""
        where, waited = _where(entry, name), 0.0
        for attempt in range(1, TRIES + 1):
            had = part.stat().st_size
            try:
                return self._transfer(entry, name, part, progress)
            except _Wait as asked:
                waited += asked.seconds
                if waited > LONGEST_WAIT_S or attempt == TRIES:
                    raise _busy(where, asked.seconds) from asked
                progress(f"{name}: the Hub asks to wait {asked.seconds:g} s")
                self.sleep(asked.seconds)
            except (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError) as cause:
                if part.stat().st_size <= had or attempt == TRIES:
                    raise _broken(where, part.stat().st_size, cause) from cause
                progress(f"{name}: broken off at {part.stat().st_size:,} bytes, going on")
            except (httpx2.HTTPError, hub_errors.HfHubHTTPError, OSError) as cause:
                raise _refused(where, entry, cause) from cause
        return None

    def _transfer(self, entry: model_table.ModelEntry, name: str, part: Path, progress: Progress) -> None:
        """Ask once, and write what comes behind what is there."""
        had = part.stat().st_size
        url = hf_hub_url(entry.repository, name, revision=entry.revision, endpoint=self.endpoint)
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if had:
            headers["Range"] = f"bytes={had}-"
        timeout = httpx2.Timeout(self.stalled_s, connect=min(CONNECT_S, self.stalled_s))
        with get_session().stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as response:
            if response.status_code == RANGE_NOT_SATISFIABLE:
                return  # all of it is there, and its digest says whether it is right
            if response.status_code == TOO_MANY_REQUESTS:
                raise _Wait(_wait_of(response))
            hf_raise_for_status(response)
            begins = had if response.status_code == PARTIAL_CONTENT else 0
            size = _size_of(response, begins)
            progress(f"{name}: {size:,} bytes{f', from {begins:,} on' if begins else ''}")
            _write(part, begins, size, response.iter_bytes())


@dataclass(frozen=True, slots=True)
class _Place:
    """A model's place in the Hub's cache: contents by digest, and a folder of links to them for each revision."""

    folder: Path
    snapshot: Path

    @classmethod
    def of(cls, cache: Path, entry: model_table.ModelEntry) -> "_Place":
        folder = cache / f"models--{entry.repository.replace('/', '--')}"
        return cls(folder, folder / "snapshots" / entry.revision)

    def digest_of(self, name: str) -> str:
        """Give the digest of a file as the cache has it; empty where it has none."""
        path = self.snapshot / name
        return digests.sha256_of_file(path) if path.is_file() else ""

    def blob(self, sha256: str) -> Path:
        """Give where a content lies. Large files have the very name that huggingface_hub gives them."""
        return self.folder / "blobs" / sha256

    def part(self, sha256: str) -> Path:
        """Give where a content is gathered."""
        return self.folder / "blobs" / f"{sha256}.vela-partial"

    def point(self, name: str, sha256: str) -> None:
        """Give a content its name in the snapshot, in one step."""
        link = self.snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        staged = link.with_name(f".{link.name}.{os.getpid()}")
        staged.unlink(missing_ok=True)
        staged.symlink_to(os.path.relpath(self.blob(sha256), link.parent))
        os.replace(staged, link)


class _Wait(Exception):
    """The Hub asks to wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@contextmanager
def _held(part: Path) -> Iterator[Path]:
    """Hold a file that is gathered, so that two processes do not write into it; one that is empty is not left."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        part.touch()
        try:
            yield part
        finally:
            if part.exists() and part.stat().st_size == 0:
                part.unlink()


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and digests.sha256_of_file(path) == sha256


def _write(part: Path, begins: int, size: int, chunks: Iterator[bytes]) -> None:
    """Write what comes from a place on; more than was promised is not taken."""
    with part.open("r+b") as stream:
        stream.truncate(begins)
        stream.seek(begins)
        for chunk in chunks:
            stream.write(chunk)
            if stream.tell() > size:
                stream.truncate(begins)
                raise httpx2.DecodingError(f"more than the {size:,} bytes that were promised")
        stream.flush()
        os.fsync(stream.fileno())
        if stream.tell() < size:
            raise httpx2.RemoteProtocolError(f"{stream.tell():,} of {size:,} bytes")


def _size_of(response: httpx2.Response, begins: int) -> int:
    """Give how large the whole file is by what the server says."""
    stated = [found.headers.get("x-linked-size") for found in (*response.history, response)]
    linked = next((int(text) for text in stated if text and text.isdecimal()), None)
    length = response.headers.get("content-length", "")
    size = linked if linked is not None else begins + int(length) if length.isdecimal() else LARGEST_BYTES
    if size > LARGEST_BYTES:
        raise httpx2.DecodingError(f"{size:,} bytes promised, more than any file of a model has")
    return size


def _wait_of(response: httpx2.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else DEFAULT_WAIT_S


def _where(entry: model_table.ModelEntry, name: str) -> str:
    return f"{entry.repository} at {entry.revision[:12]}, {name}"


def _refused(where: str, entry: model_table.ModelEntry, cause: Exception) -> errors.CheckpointError:
    """Say what a Hub's refusal means for whoever releases."""
    status = cause.response.status_code if isinstance(cause, hub_errors.HfHubHTTPError) else None
    match cause:
        case hub_errors.RevisionNotFoundError():
            found = f"no revision {entry.revision} of {entry.repository}"
            fix = "The revision was removed, or the table pins another Hub's: look at the repository's history."
        case hub_errors.GatedRepoError():
            found = f"a repository that asks for consent ({status})"
            fix = "Accept its terms on the Hub, then give a token of that account: `hf auth login`, or HF_TOKEN."
        case hub_errors.RepositoryNotFoundError():
            found = f"no repository that this account may read ({status})"
            fix = "If it is private, give a token that may read it: `hf auth login`, or HF_TOKEN."
        case hub_errors.EntryNotFoundError():
            found = "no such file in the repository"
            fix = "The Hub's repository is not what the table pins: look at its history, or name a local --checkpoint."
        case httpx2.TooManyRedirects():
            found = "redirections without an end"
            fix = "The Hub, or something before it, is set up wrong: try another HF_ENDPOINT, or later."
        case hub_errors.HfHubHTTPError():  # an OSError too
            found = f"a Hub that answers {status}"
            fix = "Run again later; files that were fetched stay."
        case OSError():
            found = f"a cache that cannot be written ({cause})"
            fix = "Make room, or name another cache by HF_HOME; what was fetched stays."
        case _:
            found = f"an answer that cannot be used ({cause})"
            fix = "Run again later; files that were fetched stay."
    return errors.CheckpointError(found, expected="the pinned file", where=where, fix=fix)


def _broken(where: str, have: int, cause: Exception) -> errors.CheckpointError:
    return errors.CheckpointError(
        f"a transfer that broke off after {have:,} bytes ({str(cause) or type(cause).__name__})",
        expected="the whole file",
        where=where,
        fix="Run again: it goes on from there, and files that were fetched stay.",
    )


def _busy(where: str, seconds: float) -> errors.CheckpointError:
    return errors.CheckpointError(
        f"a Hub that asks to wait {seconds:g} s (429)",
        expected=f"one that serves within {LONGEST_WAIT_S:g} s",
        where=where,
        fix="Run again after that; with a token (`hf auth login`) a Hub allows more. Files that were fetched stay.",
    )


def _offline(found: str, expected: str, path: Path) -> errors.CheckpointError:
    return errors.CheckpointError(
        f"sha256 {found}" if found else "no such file",
        expected=f"sha256 {expected}, as pinned",
        where=str(path),
        fix="HF_HUB_OFFLINE is set, so nothing is fetched: unset it once, or name a local --checkpoint.",
    )
