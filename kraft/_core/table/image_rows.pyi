"""Arrays of an image's rows, in the order of the requested rows."""

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.images import TableImage

IN_ISR: int
ADDING: int

def leaders_of(
    image: TableImage, rows: NDArray[np.int32]
) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
    """Return whether each row held a partition, its leader and its leader epoch; -1 if not."""

def replicas_of(
    image: TableImage, rows: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """Return brokers, directory numbers and marks (`IN_ISR`, `ADDING`), ``(len(rows), widest)``.

    Unused entries have broker -1, as have all of a row that held no partition.
    """

def isrs_of(
    image: TableImage, rows: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return partition epochs, and ISRs in their order, ``(len(rows), widest)``.

    Unused members are -1, as are all of a row that held no partition, and its epoch.
    """

def places_of(
    image: TableImage, rows: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return topic numbers and partition ids; -1 for a row that held no partition."""
