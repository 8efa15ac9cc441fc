"""What a release says of itself: an in-toto statement that these files passed these tests, signed where a key is given.

Digests already tie manifest, files and records together, so that an accident shows. Against somebody who rewrites all
of them only a signature helps: `vela serve --require-signed KEY` takes a bundle only where the statement over every
file of it, records included, was signed by that key.
Source: in-toto attestation framework, Statement v1 and the test-result predicate v0.1; DSSE v1.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from vela.graphs import bundle as bundles
from vela.graphs import contract, durable, errors, member, publication, signing, verdicts
from vela.graphs import record as records

STATEMENT_TYPE: Literal["https://in-toto.io/Statement/v1"] = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Literal["https://in-toto.io/attestation/test-result/v0.1"] = (
    "https://in-toto.io/attestation/test-result/v0.1"
)
PAYLOAD_TYPE = "application/vnd.in-toto+json"
LIMIT_BYTES = 16 << 20
NAMED = 3  # files that a message names


class Resource(msgspec.Struct, frozen=True):
    """A file or an input by name and digest."""

    name: str
    digest: dict[str, str]


class TestResult(msgspec.Struct, frozen=True, rename="camel"):
    """The predicate: what was tested, under which configuration, and that all that a bundle is published for passed.

    Warned of is what is published and never served: 16-bit copies, and graphs on an engine, that did not pass.
    """

    result: Literal["PASSED"]
    configuration: tuple[Resource, ...]
    passed_tests: tuple[str, ...]
    warned_tests: tuple[str, ...] = ()
    failed_tests: tuple[str, ...] = ()


class Statement(msgspec.Struct, frozen=True, rename="camel"):
    """An in-toto statement over every file of a bundle."""

    type_: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: tuple[Resource, ...]
    predicate_type: Literal["https://in-toto.io/attestation/test-result/v0.1"]
    predicate: TestResult


def make_statement(contents: publication.Contents, found: Sequence[records.Record]) -> Statement:
    """State that the files of a publishable bundle passed.

    Args:
        contents: What is published; that every FP32 graph passed was checked when it was settled.
        found: The records among it.
    """
    passing = verdicts.passing(found)
    tests = {f"{record.graph_id} {record.bar} {proof}" for record in passing for proof in _proofs_of(record)}
    warned = {f"{record.graph_id} {record.bar} {record.verdict}" for record in found if record.verdict != "passed"}
    inputs = {("checkpoint", record.checkpoint_sha256) for record in passing}
    inputs |= {(f"corpus of {record.graph_id}", record.corpus_sha256) for record in passing}
    return Statement(
        type_=STATEMENT_TYPE,
        subject=_resources(listing_of(contents).items()),
        predicate_type=PREDICATE_TYPE,
        predicate=TestResult("PASSED", _resources(inputs), tuple(sorted(tests)), tuple(sorted(warned))),
    )


def listing_of(contents: publication.Contents) -> dict[str, str]:
    """Give the digest of everything that a statement is about: all that is published but the statement itself."""
    return {name: source.sha256 for name, source in contents.files.items() if name != contract.ATTESTATION_FILE}


def write(bundle: bundles.Bundle, key: Path | None = None, added: Sequence[Path] = ()) -> Path:
    """Write a bundle's statement, over what publishing it with these added records would put into a store.

    Args:
        bundle: The bundle, as the gate left it.
        key: PEM file of an ed25519 private key; None leaves the statement unsigned.
        added: Records that were made elsewhere.

    Raises:
        NotVerified: the bundle cannot be published.
        SigningError: the key cannot be used.
    """
    contents = publication.Contents.from_bundle(bundle, added)
    found = [item.record for item in verdicts.read_all_evidence(bundle)]
    found += [verdicts.read_evidence(path.parent, path.name).record for path in added]
    content = msgspec.json.encode(make_statement(contents, found))
    if key is not None:
        content = signing.sign(content, PAYLOAD_TYPE, key)
    target = bundle.folder / contract.ATTESTATION_FILE
    staging = target.with_suffix(".partial")
    staging.unlink(missing_ok=True)
    durable.write_file(staging, content + b"\n")
    durable.rename(staging, target)
    return target


def refresh(bundle: bundles.Bundle, key: Path | None = None, added: Sequence[Path] = ()) -> None:
    """Make the statement fit what is about to be published: sign it with a key, mend one that nobody signed.

    Raises:
        NotVerified: a signed statement is about other files, and no key was given to sign again.
    """
    content = _read(bundle)
    if key is not None or (content is not None and not signing.is_envelope(content)):
        write(bundle, key, added)
    elif content is not None:
        _check(
            _decode(signing.payload_of(content, contract.ATTESTATION_FILE)),
            publication.Contents.from_bundle(bundle, added),
        )


def remove(bundle: bundles.Bundle) -> None:
    """Take back a statement: a graph has no pass any more."""
    (bundle.folder / contract.ATTESTATION_FILE).unlink(missing_ok=True)


def require_signed(bundle: bundles.Bundle, public_key: Path, added: Sequence[Path] = ()) -> None:
    """Refuse a bundle unless a statement over exactly its files was signed by a key.

    Args:
        bundle: The bundle, whose files need not be trustworthy; their bytes are compared elsewhere with the manifest.
        public_key: PEM file of an ed25519 public key.
        added: Records that are published with it.

    Raises:
        NotVerified: there is no statement, it was signed by nobody or by another key, or is about other files.
        SigningError: the key cannot be used.
    """
    content = _read(bundle)
    if content is None or not signing.is_envelope(content):
        found = "no statement" if content is None else "a statement that nobody signed"
        raise _refused(found, f"one signed by the key of {public_key.name}")
    payload = signing.verify(content, PAYLOAD_TYPE, public_key, contract.ATTESTATION_FILE)
    _check(_decode(payload), publication.Contents.from_bundle(bundle, added))


def _check(statement: Statement, contents: publication.Contents) -> None:
    """Refuse a statement that is not about exactly these files."""
    said = {resource.name: resource.digest.get("sha256", "") for resource in statement.subject}
    there = listing_of(contents)
    differing = sorted(name for name in said.keys() | there.keys() if said.get(name) != there.get(name))
    if differing:
        shown = ", ".join(differing[:NAMED]) + (f" and {len(differing) - NAMED} more" if len(differing) > NAMED else "")
        raise _refused(f"a statement about other files: {shown}", "one about every file as it lies there")


def _proofs_of(record: records.Record) -> tuple[verdicts.Proof, ...]:
    return verdicts.proofs([record]).get(record.graph_id, ())


def _resources(named: Iterable[tuple[str, str]]) -> tuple[Resource, ...]:
    return tuple(Resource(name, {"sha256": sha256}) for name, sha256 in sorted(named))


def _read(bundle: bundles.Bundle) -> bytes | None:
    """Read the statement's file; None where there is none."""
    try:
        return member.read_member(bundle.folder, contract.ATTESTATION_FILE, LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as cause:
        found = member.describe(cause, bundle.folder, contract.ATTESTATION_FILE)
        raise _refused(found, "a statement, or none") from cause


def _decode(payload: bytes) -> Statement:
    try:
        return msgspec.json.decode(payload, type=Statement)
    except msgspec.MsgspecError as cause:
        raise _refused(f"content that is no statement ({cause})", "an in-toto statement with a test result") from cause


def _refused(found: str, expected: str) -> errors.NotVerified:
    return errors.NotVerified(
        found,
        expected=expected,
        where=contract.ATTESTATION_FILE,
        fix="Sign the bundle again with `vela publish --sign-key`, or find out who altered it.",
    )
