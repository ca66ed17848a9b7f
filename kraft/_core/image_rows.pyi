"""Rows of an image as arrays: what partition and replica states are derived from."""

import numpy as np
from numpy.typing import NDArray

from kraft._core.history import TableImage

IN_ISR: int
ADDING: int

def leaders_of(
    image: TableImage, rows: NDArray[np.int32]
) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
    """Whether each row held a partition, its leader and its leader epoch; -1 where it held none."""

def replicas_of(
    image: TableImage, rows: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """Brokers, directory numbers and marks (`IN_ISR`, `ADDING`), each ``(len(rows), widest)``.

    A broker of -1 is no replica; a row that held no partition has none.
    """
