"""Pinned files from a Hub into the Hub's own cache, each compared with its pin before it is given a name there.

huggingface_hub finds the address, the token and the cache; but its download begins a file anew whenever it was
interrupted, waits as long as a server says, and keeps whatever bytes came. A release wants to go on where a line
broke, to end in the time that it has, and never to meet a wrong file again. The names of all files and their digests
are known before, so nothing is listed, and nothing else is fetched.
Source: huggingface_hub 2.4, file_download.py (`_download_to_tmp_and_move`, `http_get`) and utils/_http.py.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from vela.export import hub_cache, hub_failures
from vela.graphs import digests, model_table

CONNECT_S, STALLED_S = 10.0, 30.0
TRIES = 4  # of one file within one call; a broken line mostly holds the next time
SLOWEST_BYTES_PER_S = 1000  # a line below it would need two weeks for the family's smallest weights
LARGEST_BYTES = 64 << 30  # of a file; the family's weights are 1.2 GB
DIGITS = 20  # of a length that is worth reading
PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE = 206, 416
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Hub:
    """Where pinned models come from.

    Attributes:
        endpoint: The Hub's address; None for the one that huggingface_hub is set to.
        cache: The Hub's cache; None for the one that huggingface_hub is set to.
        sleep: Waits so many seconds.
        stalled_s: With no bytes, or hardly any, for so long, a transfer has broken.
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
        place = hub_cache.Place.of(self.cache or Path(constants.HF_HUB_CACHE), entry)
        # Small files first: what is wrong with them is said before gigabytes are fetched.
        for name in sorted(entry.files, key=lambda name: (name.endswith(".safetensors"), name)):
            try:
                self._supply(entry, name, place, progress)
            except OSError as cause:
                raise hub_failures.no_cache(place.snapshot / name, cause) from cause
        return place.snapshot

    def _supply(self, entry: model_table.ModelEntry, name: str, place: hub_cache.Place, progress: Progress) -> None:
        """Make a file's place in the cache hold the pinned bytes."""
        sha256 = entry.files[name]
        found = place.digest_of(name)
        if found == sha256:
            return
        if constants.is_offline_mode() and not place.has(sha256):
            raise hub_failures.offline(found, sha256, place.snapshot / name)
        try:
            get_session()  # is made when it is first asked for, of certificates and proxies that the environment names
        except (OSError, ValueError) as cause:
            raise hub_failures.no_client(cause) from cause
        with place.held(sha256, lambda: progress(f"{name}: another process fetches it, waiting")) as part:
            if not place.has(sha256):
                self._download(entry, name, part, progress)
                place.keep(sha256)
            place.point(name, sha256)

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
            raise hub_failures.other_bytes(found, expected, hub_failures.where(entry, name))

    def _gather(self, entry: model_table.ModelEntry, name: str, part: Path, progress: Progress) -> None:
        """Ask until the whole file is there, as often and as long as a release may wait for it."""
        where, waited = hub_failures.where(entry, name), 0.0
        for attempt in range(TRIES):
            had = part.stat().st_size
            try:
                return self._transfer(entry, name, part, progress)
            except hub_failures.PASSING as cause:
                have = part.stat().st_size
                pause = 0.0 if have > had else hub_failures.pause_after(cause, attempt)
                waited += pause
                if attempt + 1 == TRIES or waited > hub_failures.LONGEST_WAIT_S:
                    raise hub_failures.lasting(cause, have, where) from cause
                progress(f"{name}: {hub_failures.trouble(cause, have)}; going on{f' in {pause:g} s' if pause else ''}")
                if pause:
                    self.sleep(pause)
            except httpx2.HTTPError as cause:
                raise hub_failures.refused(cause, entry, where) from cause
        return None

    def _transfer(self, entry: model_table.ModelEntry, name: str, part: Path, progress: Progress) -> None:
        """Ask once, and write what comes behind what is there."""
        had = part.stat().st_size
        request = self._request(entry, name, had)
        with closing(get_session().send(request, stream=True, follow_redirects=True)) as response:
            if had and response.status_code == RANGE_NOT_SATISFIABLE:
                return  # all of it is there, and its digest says whether it is right
            if response.status_code in hub_failures.PASSING_STATUS:
                raise hub_failures.Busy.from_response(response)
            # Not huggingface_hub's own reading of a refusal: it takes a body of any length, and trips over odd ones.
            response.raise_for_status()
            begins = had if response.status_code == PARTIAL_CONTENT else 0
            size = _size_of(response, begins)
            stated = "length not stated" if size is None else f"{size:,} bytes"
            progress(f"{name}: {stated}{f', from {begins:,} on' if begins else ''}")
            _write(part, begins, size, _steady(response.iter_bytes(), self.stalled_s))

    def _request(self, entry: model_table.ModelEntry, name: str, begins: int) -> httpx2.Request:
        """Give the request for a file from a byte on.

        `identity`, because a Hub states no length of what it compresses, and has no ranges of it.
        """
        ranges = {"Range": f"bytes={begins}-"} if begins else {}
        timeout = httpx2.Timeout(self.stalled_s, connect=min(CONNECT_S, self.stalled_s))
        try:
            url = hf_hub_url(entry.repository, name, revision=entry.revision, endpoint=self.endpoint)
            headers = {**build_hf_headers(), "Accept-Encoding": "identity", **ranges}
            return get_session().build_request("GET", url, headers=headers, timeout=timeout)
        except (httpx2.InvalidURL, ValueError) as cause:
            raise hub_failures.no_request(cause, hub_failures.where(entry, name)) from cause


def _write(part: Path, begins: int, size: int | None, chunks: Iterator[bytes]) -> None:
    """Write what comes from a byte on; more than was promised is not taken, and less is a line that broke."""
    most = LARGEST_BYTES if size is None else size
    with part.open("r+b") as stream:
        stream.truncate(begins)
        stream.seek(begins)
        for chunk in chunks:
            stream.write(chunk)
            if stream.tell() > most:
                stream.truncate(begins)
                raise httpx2.DecodingError(f"more than the {most:,} bytes that were promised")
        have = stream.tell()
    if size is not None and have < size:
        raise httpx2.RemoteProtocolError(f"{have:,} of {size:,} bytes")


def _steady(chunks: Iterator[bytes], window_s: float) -> Iterator[bytes]:
    """Pass on what comes, as long as it comes faster than drops: those would hold a release for days."""
    began, count = time.monotonic(), 0
    for chunk in chunks:
        yield chunk
        count += len(chunk)
        now = time.monotonic()
        if now - began > window_s:
            if count < SLOWEST_BYTES_PER_S * (now - began):
                raise httpx2.ReadTimeout(f"only {count:,} bytes in {now - began:.1f} s")
            began, count = now, 0


def _size_of(response: httpx2.Response, begins: int) -> int | None:
    """Give how large the whole file is by what the server says; None where it does not."""
    linked = [_number(answer.headers.get("x-linked-size", "")) for answer in (*response.history, response)]
    compressed = "content-encoding" in response.headers  # against what was asked, and the length is not the file's
    length = None if compressed else _number(response.headers.get("content-length", ""))
    size = next((size for size in linked if size is not None), None if length is None else begins + length)
    if size is not None and size > LARGEST_BYTES:
        raise httpx2.DecodingError(f"{size:,} bytes promised, more than any file of a model has")
    return size


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= DIGITS else None
