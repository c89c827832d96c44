"""Centers of a set of vectors by FAISS k-means: the lists of an index, the words of a codebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import faiss
import numpy as np
from numpy.typing import NDArray

__all__ = ["kmeans_centers", "one_thread"]


def kmeans_centers(
    vectors: NDArray[np.float32],
    n_centers: int,
    *,
    n_iterations: int,
    seed: int,
    whole_numbers: bool = False,
    max_vectors_a_center: int = 256,
) -> NDArray[np.float32]:
    """Centers that lower the sum of squared distances from each vector to its nearest center (Lloyd's algorithm).

    Parameters
    ----------
    vectors : ndarray of shape (n_vectors, d)
    n_centers : int
        At most ``n_vectors``; as many centers as vectors are the vectors themselves.
    n_iterations : int
        Rounds of assigning the vectors and averaging those of a center.
    seed : int
        Of the first centers, and of the choice of vectors when there are too many.
    whole_numbers : bool, default=False
        Round the centers to whole numbers after each round. With vectors of whole numbers up to 255 all distances are
        then exact, and the centers are the same for any number of threads, so that all cores are used. Otherwise one
        thread does the work, for the same reason.
    max_vectors_a_center : int, default=256
        With more vectors than this times ``n_centers``, a random choice of so many is used.

    Returns
    -------
    ndarray of shape (n_centers, d)

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0, 0], [0, 2], [9, 9], [9, 7]], np.float32)
    >>> sorted(kmeans_centers(points, 2, n_iterations=5, seed=0).tolist())
    [[0.0, 1.0], [9.0, 8.0]]
    """
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        n_centers,
        niter=n_iterations,
        seed=seed,
        int_centroids=whole_numbers,
        min_points_per_centroid=1,
        max_points_per_centroid=max_vectors_a_center,
    )
    with nullcontext() if whole_numbers else one_thread():
        kmeans.train(np.ascontiguousarray(vectors, np.float32))
    return np.asarray(kmeans.centroids, np.float32)


@contextmanager
def one_thread() -> Iterator[None]:
    """FAISS on one thread for the calling thread: images are worked on side by side instead."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
