"""Text to token ids: one tokenizer for a bundle, content tokenised once, framed without tokenising again.

Content is tokenised without special tokens; the special tokens around it (the frame) are known from load. So windows
and truncation slice ids and never text, and a literal `<eos>` in a text is content, whichever ids it becomes. Export
writes the frame into the manifest, the gate and serve read it from there and refuse a tokenizer.json that disagrees.
Truncation and padding that a file carries are switched off: in this family they differ from model to model, and what
they cut is never reported.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

# A text is tokenised in the thread that asks: handing it to a pool of threads and back takes longer than most texts do,
# and the cores are the engine's.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import msgspec
import tokenizers

from vela.graphs import bundle, digests, errors, manifest

# Tokens at a cut that may be others, or one, where the text goes on: the longest in use have some thirty characters.
JOINED_TOKENS = 64

Ids = tuple[int, ...]
Offsets = tuple[tuple[int, int], ...]

# Texts on which the frame must be the same. They hold nothing, plain words, several scripts, white space only,
# literal special tokens of the families in use, and bytes that only a byte fallback covers.
PROBES = (
    "",
    "a",
    "Hello, world!",
    " \n\t ",
    "<bos> <eos> [CLS] [SEP] </s>",
    "中文 🚀 naïve\u0301",
    "\x00\u200b\U0010fffd",
)


class Content(msgspec.Struct, frozen=True):
    """A text's tokens without special tokens.

    Attributes:
        ids: N token ids.
        offsets: Start and end of each token in the text, in code points, end exclusive; tokens that are bytes of one
            character all have that character's. Empty where they were not asked for.
    """

    ids: Ids
    offsets: Offsets


class Framed(msgspec.Struct, frozen=True):
    """Token ids as a graph takes them, and which of them the answer is about.

    Attributes:
        ids: With special tokens.
        first: Place in `ids` of the first content token; of the second text's first token for a pair.
        count: Number of those tokens.
    """

    ids: Ids
    first: int
    count: int


class Tokenizer:
    """A loaded tokenizer.json with its frame; safe to use from several threads, nothing in it changes.

    Args:
        inner: Truncation and padding switched off.
        facts: What the manifest says of it.
    """

    def __init__(self, inner: tokenizers.Tokenizer, facts: manifest.TokenizerFacts) -> None:
        self._inner = inner
        self.facts = facts

    @classmethod
    def from_bundle(cls, opened: bundle.Bundle) -> Self:
        """Load a bundle's tokenizer; its file must have been checked by digest.

        Raises:
            ManifestInvalid: tokenizer.json frames texts otherwise than the manifest says.
            CheckpointError: tokenizer.json cannot be used.
        """
        expected = opened.manifest.tokenizer
        path = opened.path(expected.file)
        inner = _load(path)
        found = _facts(inner, path, pad_id=expected.pad_id)
        if found != expected:
            differing = [name for name in expected.__struct_fields__ if getattr(found, name) != getattr(expected, name)]
            raise errors.ManifestInvalid(
                ", ".join(f"{name} {getattr(found, name)}" for name in differing),
                expected=", ".join(f"{name} {getattr(expected, name)}" for name in differing),
                where=f"{opened.folder.name}/{expected.file}",
                fix="The manifest was written for another tokenizer: export the bundle again.",
            )
        return cls(inner, expected)

    @classmethod
    def from_file(cls, path: Path, *, pad_id: int) -> Self:
        """Load a tokenizer.json on its own and read its frame from itself; the gate reads the reference's so.

        Raises:
            CheckpointError: it cannot be used.
        """
        inner = _load(path)
        return cls(inner, _facts(inner, path, pad_id=pad_id))

    @property
    def special_count(self) -> int:
        """Special tokens around one text."""
        return len(self.facts.prefix) + len(self.facts.suffix)

    @property
    def unsettled_tokens(self) -> int:
        """By how many tokens, at most, the part of a text may have more than the text has there, or other ones.

        WordPiece makes one token of a word of too many characters, and of its beginning up to one for each.
        """
        model = self._inner.model
        longest: int = getattr(model, "max_input_chars_per_word", 0)
        return max(JOINED_TOKENS, longest)

    @property
    def pair_special_count(self) -> int:
        """Special tokens around and between two texts."""
        return self.special_count + len(self.facts.separator)

    def encode(self, texts: Sequence[str], *, with_offsets: bool) -> list[Content]:
        """Tokenise texts without special tokens, each once, without holding Python's lock.

        Args:
            texts: Any strings that UTF-8 can hold.
            with_offsets: Whether offsets are needed; ids alone are about four times faster.

        Raises:
            ItemError: a text holds a lone surrogate, which no tokenizer takes.

        Source: tokenizers 0.23, measured: `encode` holds the lock, `encode_batch` does not; `encode_batch_fast`
        gives the same ids and offsets that are all (0, 0).
        """
        encode = self._inner.encode_batch if with_offsets else self._inner.encode_batch_fast
        try:
            encodings = encode(list(texts), add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as cause:
            raise errors.ItemError(
                "invalid_input",
                "a text with a lone surrogate",
                expected="text that UTF-8 can hold",
                where="input",
                fix="Send whole characters; half of a surrogate pair is not one.",
            ) from cause
        if with_offsets:
            return [Content(tuple(encoding.ids), tuple(encoding.offsets)) for encoding in encodings]
        return [Content(tuple(encoding.ids), ()) for encoding in encodings]

    def frame(self, ids: Ids) -> Framed:
        """Put the special tokens around one text's ids, or around a slice of them."""
        return Framed(self.facts.prefix + ids + self.facts.suffix, len(self.facts.prefix), len(ids))

    def frame_pair(self, first: Ids, second: Ids) -> Framed:
        """Put the special tokens around and between two texts; the answer is about the second.

        Raises:
            CheckpointError: this tokenizer does not frame pairs.
        """
        if not self.facts.separator:
            raise _unusable(self.facts.file, "no framing of pairs", "special tokens between the two texts of a pair")
        head = self.facts.prefix + first + self.facts.separator
        return Framed(head + second + self.facts.suffix, len(head), len(second))


def facts_from_tokenizer(path: Path, *, pad_id: int) -> manifest.TokenizerFacts:
    """Read how a tokenizer.json frames texts and pairs.

    Args:
        path: The file; its name and digest become part of the facts.
        pad_id: The checkpoint's padding id, from config.json.

    Raises:
        CheckpointError: it cannot be read, its frame depends on the text, or `pad_id` is no id of it.
    """
    return _facts(_load(path), path, pad_id=pad_id)


def _load(path: Path) -> tokenizers.Tokenizer:
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except Exception as cause:  # tokenizers raises bare Exception on a file that it cannot read
        raise _unusable(path.name, f"a file that does not load ({cause})", "a tokenizer.json of tokenizers") from cause
    inner.no_truncation()
    inner.no_padding()
    return inner


def _facts(inner: tokenizers.Tokenizer, path: Path, *, pad_id: int) -> manifest.TokenizerFacts:
    prefix, suffix = _single_frame(inner, path.name)
    vocabulary_size = max(inner.get_vocab(with_added_tokens=True).values()) + 1
    if not 0 <= pad_id < vocabulary_size:
        raise _unusable(path.name, f"pad id {pad_id} and {vocabulary_size} ids", "a pad id that the tokenizer has")
    return manifest.TokenizerFacts(
        file=path.name,
        sha256=digests.sha256_of_file(path),
        prefix=prefix,
        separator=_separator(inner, prefix, suffix),
        suffix=suffix,
        pad_id=pad_id,
        vocabulary_size=vocabulary_size,
    )


def _content_ids(inner: tokenizers.Tokenizer, text: str) -> Ids:
    return tuple(inner.encode(text, add_special_tokens=False).ids)


def _single_frame(inner: tokenizers.Tokenizer, where: str) -> tuple[Ids, Ids]:
    """Split the ids of the empty text into what stands before and after every probe's content."""
    special = tuple(inner.encode("").ids)
    pairs = [(_content_ids(inner, probe), tuple(inner.encode(probe).ids)) for probe in PROBES]
    for place in range(len(special) + 1):
        prefix, suffix = special[:place], special[place:]
        # "a" alone could be framed by several splits of equal ids; all probes together leave one, or equal ones.
        if all(framed == prefix + content + suffix for content, framed in pairs):
            return prefix, suffix
    raise _unusable(where, f"special tokens {special} that move or change with the text", "one frame for every text")


def _separator(inner: tokenizers.Tokenizer, prefix: Ids, suffix: Ids) -> Ids:
    """Read the ids between the texts of a pair; empty where pairs get no separator or another outer frame."""
    empty = tuple(inner.encode("", "").ids)
    separator = empty[len(prefix) : len(empty) - len(suffix)]
    for first in PROBES:
        for second in PROBES:
            expected = prefix + _content_ids(inner, first) + separator + _content_ids(inner, second) + suffix
            if tuple(inner.encode(first, second).ids) != expected:
                return ()
    return separator


def _unusable(where: str, found: str, expected: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found, expected=expected, where=where, fix="Use the tokenizer.json that the checkpoint was trained with."
    )
