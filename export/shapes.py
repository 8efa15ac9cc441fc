"""Which graphs a bundle has: for whom, of which lengths and batches, and how they hold weights.

It loads no PyTorch: a release sends it to the processes that do, and says what is wrong with it before that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vela.graphs import contract, ladder

if TYPE_CHECKING:
    from vela.export import bundle_writer, sources, specialise


@dataclass(frozen=True, slots=True)
class Shapes:
    """The graphs of any model.

    Attributes:
        forms: For whom.
        buckets: Lengths of the fixed graphs.
        batches: Rows of the fixed graphs.
        storage: Whether graphs refer to the checkpoint's weights.
        reduced: In which 16-bit types the fixed graphs have copies.
    """

    forms: "tuple[specialise.Form, ...]" = ("cpu", "portable")
    buckets: tuple[int, ...] = ladder.DEFAULT_BUCKETS
    batches: tuple[int, ...] = ladder.DEFAULT_BATCHES
    storage: contract.WeightStorage = "reference"
    reduced: tuple[contract.Precision, ...] = ()

    def plan(self, source: "sources.Source") -> "bundle_writer.ExportPlan":
        """Give what export is asked for, of one checkpoint."""
        from vela.export import bundle_writer

        return bundle_writer.ExportPlan(
            source.name,
            buckets=self.buckets,
            batches=self.batches,
            forms=self.forms,
            storage=self.storage,
            reduced=self.reduced,
            repository=source.repository,
            revision=source.revision,
            model_sha256=source.model_sha256,
        )
