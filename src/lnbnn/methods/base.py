"""What a method is: mathematics on features. It knows no picture, and no folder but the one it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lnbnn.features import ImageFeatures
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.references import Reference, References

if TYPE_CHECKING:
    from lnbnn.descriptors.normalization import Normalizer

__all__ = ["Method", "Progress", "no_progress"]


class Method(ABC):
    """Learns from the features of labeled images, scores those of others, and says which arrays it must keep.

    Learning is :meth:`add` for each image and one :meth:`finish`. A method that learns nothing across images is
    incremental: after :meth:`resume` images may be added, removed and relabeled, and :meth:`finish` ends the change.

    Parameters
    ----------
    settings : object
        Has the method's settings as attributes.
    """

    is_incremental: ClassVar[bool] = False
    """Whether images can be added to, and taken from, what was learned."""
    has_patch_evidence: ClassVar[bool] = False
    """Whether the scores are sums of what the descriptors say, so that they can be shown on the picture."""
    needs_normalizer: ClassVar[bool] = True
    """Whether float descriptors are to be normalized for it."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.references = References()

    # ---- learning -----------------------------------------------------------------------------------------------

    def prepare(self, features: ImageFeatures, normalizer: Normalizer | None) -> ImageFeatures:
        """Features as the method compares them: float descriptors normalized by what was learned about them."""
        return features if normalizer is None else normalizer.apply(features)

    @abstractmethod
    def add(self, image: Reference, features: ImageFeatures) -> None:
        """Take in one labeled image that has descriptors."""

    @abstractmethod
    def finish(self, references: References, progress: Progress) -> None:
        """All images are in."""

    def resume(self, *, keeps_structure: bool = False) -> None:  # noqa: B027
        """Make ready for changes; with ``keeps_structure`` the indexes are known to bear them as they are."""

    def remove(self, image: Reference) -> None:  # noqa: B027
        """Forget one labeled image."""

    def relabel(self, image: Reference, label: Any) -> None:  # noqa: B027
        """Give one labeled image another label."""

    def compact(self, *, full: bool, progress: Progress) -> None:  # noqa: B027
        """Rebuild what is outgrown; with ``full`` also drop what is left of removed images."""

    def absorb(self, other: Method, place: int, image: Reference) -> None:  # noqa: B027
        """Take in an image of another fitted method of the same settings, by its place there."""

    def check_absorbs(self, other: Method) -> None:  # noqa: B027
        """Raise unless images of another fitted method of the same settings can be taken in as they are there."""

    @property
    def max_pending(self) -> int | None:
        """How many descriptors of added images a model's files may hold beside its index; None: by its size."""
        return None

    def min_descriptors(self) -> int:
        """How many descriptors a model must hold for a search."""
        return 1

    # ---- scoring ------------------------------------------------------------------------------------------------

    @abstractmethod
    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        """The score of each class for prepared features, higher is better; called from many threads."""

    def patch_scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        """What each descriptor adds to the score of each class, (n_descriptors, n_classes); of methods that can tell.

        The NBNN family has sparse updates instead.
        """
        raise NotImplementedError(f"{type(self).__name__} has no patch scores")

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        """The scores of each reference as if it was not known, or None where the method cannot tell.

        Parameters
        ----------
        rows : sequence of int, optional
            Only of the references at these places.

        Returns
        -------
        ndarray of shape (n_images, n_classes), comparable to :meth:`scores`
        """
        return None

    def unknown_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        """The scores of each reference as if its class was not known, -inf for that class; None as above."""
        return None

    def score_scale(self, n_descriptors: int) -> float:
        """What the scores of an image are divided by before the softmax, given its number of descriptors."""
        return 1.0

    # ---- keeping ------------------------------------------------------------------------------------------------

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was learned as files into the folder."""

    @abstractmethod
    def load(self, folder: Path, references: References) -> None:
        """Read what :meth:`save` wrote."""

    def inconsistencies(self) -> list[str]:
        """What does not fit together in a model whose files are whole, one line each; every row is looked at."""
        return []

    @abstractmethod
    def describe(self) -> str:
        """One line that says how the answer is found."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory that what was learned takes, memory-mapped parts included."""
