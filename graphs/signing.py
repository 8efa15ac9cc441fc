"""Sign bytes with an ed25519 key, and check that they were: DSSE envelopes, by securesystemslib.

The library comes with the extra `sign`; it is imported here and only when something is signed or checked, so that a
server that asks for no signature does not carry it.
Source: DSSE v1 (secure-systems-lab/dsse); securesystemslib 1.6.
"""

import base64
import json
from pathlib import Path
from typing import Any

from vela.graphs import errors

KEY_LIMIT_BYTES = 64 << 10


def sign(payload: bytes, payload_type: str, key: Path) -> bytes:
    """Put bytes into an envelope and sign it.

    Args:
        payload: What is signed, with its type.
        payload_type: Media type.
        key: PEM file of an ed25519 private key, not encrypted.

    Raises:
        SigningError: the key cannot be used, or the extra is not installed.
    """
    dsse, signers, serialization = _libraries()
    private = _load(key, lambda content: serialization.load_pem_private_key(content, password=None))
    envelope = dsse.Envelope(payload, payload_type, {})
    envelope.sign(signers.CryptoSigner(private))
    return json.dumps(envelope.to_dict(), sort_keys=True).encode()


def require_usable(key: Path) -> None:
    """Refuse a key that cannot sign, before the hour whose result it is to sign; SigningError names it."""
    sign(b"", "text/plain", key)


def verify(content: bytes, payload_type: str, public_key: Path, where: str) -> bytes:
    """Check an envelope's signature and give what was signed.

    Args:
        content: The envelope.
        payload_type: Media type that it must have.
        public_key: PEM file of the ed25519 public key that must have signed it.
        where: What the envelope is called, for messages.

    Raises:
        NotVerified: it is no envelope, of another type, or was not signed by this key.
        SigningError: the key cannot be used, or the extra is not installed.
    """
    dsse, signers, serialization = _libraries()
    from securesystemslib import exceptions  # beside the others: the extra may be absent

    public = signers.SSlibKey.from_crypto(_load(public_key, serialization.load_pem_public_key))
    envelope = dsse.Envelope.from_dict(_parse(content, where))
    if envelope.payload_type != payload_type:
        raise _refused(f"an envelope of {envelope.payload_type!r}", payload_type, where)
    try:
        envelope.verify([public], 1)
    except exceptions.VerificationError as cause:
        raise _refused("a signature by another key, or over other bytes", f"one by {public_key.name}", where) from cause
    return bytes(envelope.payload)


def is_envelope(content: bytes) -> bool:
    """Say whether bytes claim to be an envelope."""
    try:
        return "payloadType" in json.loads(content)
    except (ValueError, RecursionError, TypeError):
        return False


def payload_of(content: bytes, where: str) -> bytes:
    """Give what an envelope holds without asking who signed it; NotVerified where it is none."""
    return base64.b64decode(_parse(content, where)["payload"])


def _parse(content: bytes, where: str) -> dict[str, Any]:
    """Read an envelope's JSON and check its form, since the library takes any."""
    try:
        found = json.loads(content)
        entries = [(entry["keyid"], entry["sig"]) for entry in found["signatures"]]
        texts = [found["payload"], found["payloadType"], *(text for entry in entries for text in entry)]
        for encoded in (found["payload"], *(signature for _, signature in entries)):
            base64.b64decode(encoded, validate=True)
    except (ValueError, RecursionError, TypeError, KeyError) as cause:
        raise _refused(f"content that is no envelope ({cause})", "a DSSE envelope", where) from cause
    if not all(isinstance(text, str) for text in texts) or len(dict(entries)) != len(entries):
        raise _refused("an envelope of another form", "a DSSE envelope", where)
    return {
        "payload": found["payload"],
        "payloadType": found["payloadType"],
        "signatures": [{"keyid": keyid, "sig": signature} for keyid, signature in entries],
    }


def _load(path: Path, read: Any) -> Any:
    """Read a key file; refuse any but ed25519."""
    from cryptography import exceptions
    from cryptography.hazmat.primitives.asymmetric import ed25519

    try:
        if path.stat().st_size > KEY_LIMIT_BYTES:
            raise ValueError("too large for a key")
        key = read(path.read_bytes())
    except (OSError, ValueError, TypeError, exceptions.UnsupportedAlgorithm) as cause:
        raise _unusable(f"a key that cannot be read ({cause})", path) from cause
    if not isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
        raise _unusable(f"a key of another kind ({type(key).__name__})", path)
    return key


def _libraries() -> tuple[Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from securesystemslib import dsse, signer
    except ImportError as cause:
        raise errors.SigningError(
            f"no library to sign with ({cause})",
            expected="the extra `sign`",
            where="installation",
            fix="Install it: pip install 'vela-onnx[sign]'.",
        ) from cause
    return dsse, signer, serialization


def _unusable(found: str, path: Path) -> errors.SigningError:
    return errors.SigningError(
        found,
        expected="an ed25519 key in PEM, not encrypted",
        where=path.name,
        fix="`openssl genpkey -algorithm ed25519 -out key.pem`, and `openssl pkey -in key.pem -pubout` for the other.",
    )


def _refused(found: str, expected: str, where: str) -> errors.NotVerified:
    return errors.NotVerified(
        found, expected=expected, where=where, fix="Take the bundle from whom you trust, or sign it again."
    )
