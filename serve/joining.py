"""May rows of several callers share a run and still answer as if each had run alone, to the last bit?

That is no matter of course: kernels cut sums by the shape of what they are given. So it is tried on each graph when it
is loaded, on this machine, and where a single bit differs every row runs alone. Rows that share a run are of one
length: none is padded, and none needs a mask.
"""

from collections.abc import Sequence

from vela.serve import engine

# Long enough that rows of it are not all the same words.
TEXT = (
    "The quick brown fox jumps over the lazy dog, while 17 zebras, 4 owls and a very old tortoise look on; none of "
    "them has ever paid by card, lost a parcel, or asked a machine to translate naïve café menus into 中文 at night."
)
MOST_ROWS = 16
# Runs of more tokens than this are limited by arithmetic and no longer by reading the weights, so sharing one gains
# nothing and lets the first wait for the others. Measured with 307M parameters on two cores.
MOST_TOKENS = 256
# Rows and tokens: the shortest text, powers of two and odd numbers, below and above the widths of vector registers.
TRIED = ((16, 3), (2, 12), (3, 19), (7, 33), (16, 16), (4, 64))


def proven_rows(session: engine.Session, ids: Sequence[int], pad_id: int) -> int:
    """Give how many rows of one length may share a run: `MOST_ROWS`, or 1 where a bit differs.

    Args:
        session: A loaded graph.
        ids: Token ids to make rows of.
        pad_id: The tokenizer's padding id.
    """
    if session.graph.batch is not None or session.graph.sequence is not None:
        return 1
    for count, tokens in TRIED:
        rows = [[ids[(row * 5 + place) % len(ids)] for place in range(tokens)] for row in range(count)]
        together = session.run(engine.pad_rows(rows, session.graph, pad_id))
        for row in {0, count // 2, count - 1}:
            alone = session.run(engine.pad_rows([rows[row]], session.graph, pad_id))
            if any(together[name][row].tobytes() != alone[name][0].tobytes() for name in alone):
                return 1
    return MOST_ROWS


def rows_that_may_share(proven: int, tokens: int) -> int:
    """Give how many rows of so many tokens may share a run."""
    return max(1, min(proven, MOST_TOKENS // tokens))
