"""Publish a newer bundle under a server that is asked without a pause: what callers see meanwhile.

    python scripts/bench/reloading.py BUNDLE [--device cpu] [--callers 4] [--tokens 64]

BUNDLE was verified on that device. The newer bundle has the same graphs and another report, so no answer may change.
Prints JSON: statuses, answers that changed, and how long answers took before, while it was loaded, and after. Exits
with 1 where a request failed, an answer changed, or the newer bundle was not served.
"""

import argparse
import json
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
import served

from vela.graphs import bundle as bundles
from vela.graphs import contract, store
from vela.serve.deployment import Deployment
from vela.serve.device import Device
from vela.serve.model import ServedModel

BEFORE_S, AFTER_S, PATIENCE_S = 3.0, 3.0, 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request came to: when it ended, after how long, with which status, 0 for none, its text and answer."""

    at: float
    seconds: float
    status: int
    text: str
    results: str


def ask_until(stop: threading.Event, port: int, texts: Sequence[str], found: list[Answer]) -> None:
    """Ask one request after the other on one connection."""
    number = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not stop.is_set():
            text = texts[number % len(texts)]
            number += 1
            content = json.dumps({"input": text}).encode()
            began = time.monotonic()
            head = f"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
            connection.sendall(head.encode() + content)
            answer = part = connection.recv(1 << 16)
            while part and (not answer.endswith(b"}") or b"\r\n\r\n{" not in answer):
                part = connection.recv(1 << 16)
                answer += part
            ended = time.monotonic()
            if not part:  # closed before the answer was whole
                found.append(Answer(ended, ended - began, 0, text, ""))
                return
            results = json.dumps(json.loads(answer.partition(b"\r\n\r\n")[2]).get("results"))
            found.append(Answer(ended, ended - began, int(answer.split(b" ", 2)[1]), text, results))


def publish_another(folder: Path, path: Path, work: Path) -> str:
    """Publish the same bundle with another report; give its digest."""
    other = work / folder.name
    shutil.copytree(folder, other)
    report = other / contract.RECORDS_FOLDER / contract.REPORT_FILE
    report.write_text("<!doctype html><title>published under load</title>", encoding="utf-8")
    (other / contract.ATTESTATION_FILE).unlink(missing_ok=True)
    return store.Store.create_or_open(path).publish(other).digest


def reload_under_load(
    opened: bundles.Bundle, texts: Sequence[str], callers: int, work: Path, *options: str
) -> dict[str, Any]:
    """Serve a bundle, ask without a pause, and publish a newer one meanwhile.

    Args:
        opened: The bundle.
        texts: What is asked.
        callers: How many ask at a time.
        work: An empty folder.
        options: Of `vela serve`.
    """
    path, found, stop, lines = work / "store", list[Answer](), threading.Event(), list[tuple[float, str]]()
    store.Store.create_or_open(path).publish(opened.folder)
    with served.serving(path, *options, "--reload", "0.2") as server:
        listening = threading.Thread(
            target=lambda: lines.extend((time.monotonic(), line) for line in server.process.stderr or ()), daemon=True
        )
        listening.start()
        asking = [
            threading.Thread(target=ask_until, args=(stop, server.port, texts, found), daemon=True)
            for _ in range(callers)
        ]
        for thread in asking:
            thread.start()
        time.sleep(BEFORE_S)
        digest = publish_another(opened.folder, path, work)
        published = time.monotonic()
        while time.monotonic() < published + PATIENCE_S and all(one.is_alive() for one in asking):
            if any("bundle" in line for _, line in lines):  # it says that it serves the newer one, or why not
                break
            time.sleep(0.05)
        time.sleep(AFTER_S)
        stop.set()
        for thread in asking:
            thread.join(PATIENCE_S)
    serving_since = next((at for at, line in lines if f"serves bundle {digest} now" in line), None)
    return _told(found, published, serving_since, [line.strip() for _, line in lines if "bundle" in line])


def _told(found: Sequence[Answer], published: float, since: float | None, said: list[str]) -> dict[str, Any]:
    given: dict[str, set[str]] = {}
    for answer in found:
        given.setdefault(answer.text, set()).add(answer.results)
    end = published if since is None else since
    parts = {
        "before": [one for one in found if one.at < published],
        "while loading": [one for one in found if published <= one.at < end],
        "after": [one for one in found if one.at >= end],
    }
    return {
        "command": "python scripts/bench/reloading.py BUNDLE --device DEVICE",
        "machine": report.describe_machine(),
        "statuses": dict(Counter(str(one.status) for one in found)),
        "texts_whose_answer_changed": sum(len(answers) > 1 for answers in given.values()),
        "newer_bundle_served_after_s": None if since is None else round(since - published, 2),
        "server_said": said,
        "milliseconds": {
            name: {
                "answers": len(part),
                "p50": round(1000 * statistics.median(one.seconds for one in part), 3),
                "p95": round(1000 * statistics.quantiles([one.seconds for one in part], n=20)[-1], 3),
                "most": round(1000 * max(one.seconds for one in part), 3),
            }
            for name, part in parts.items()
            if len(part) > 1
        },
    }


def has_held(found: dict[str, Any]) -> bool:
    """Say whether every request was answered, alike, and the newer bundle served in the end."""
    is_served = found["newer_bundle_served_after_s"] is not None
    return is_served and found["statuses"].keys() == {"200"} and found["texts_whose_answer_changed"] == 0


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    opened = bundles.Bundle.open(given.bundle)
    model = ServedModel.open(opened, Deployment(Device.parse(given.device)))
    texts = served.make_texts(model, given.tokens, 8, seed=1)
    del model
    with tempfile.TemporaryDirectory(prefix="vela-reloading-", dir=opened.folder.parent) as work:
        found = reload_under_load(opened, texts, given.callers, Path(work), "--device", given.device)
    print(json.dumps(found, indent=1))
    sys.exit(not has_held(found))


if __name__ == "__main__":
    main()
