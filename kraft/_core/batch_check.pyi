"""Record batches v2 held against every rule that their records owe, not only their headers."""

from typing_extensions import Buffer

from kraft._core.batch import BatchTable

def validate(
    buffer: Buffer,
    *,
    base_position: int = 0,
    verify_crc: bool = True,
    dense: bool = False,
    budget: int = ...,
) -> BatchTable:
    """As `batch.scan`, but everything is checked; anything amiss is a `CorruptRecordError`.

    Headers, CRCs, offsets that ascend from batch to batch, each record's framing, its offset delta,
    the count of records and that no byte is left over. With ``dense`` also that offsets have no
    gaps, within and between batches, as in a metadata log. Compressed records are inflated to be
    checked, at most ``budget`` bytes of them.
    """
