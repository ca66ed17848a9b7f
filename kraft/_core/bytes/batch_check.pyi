"""Record batches: check every rule about their records, not only their headers."""

from typing_extensions import Buffer

from kraft._core.bytes.batch import BatchTable

def validate(
    buffer: Buffer,
    *,
    base_position: int = 0,
    verify_crc: bool = True,
    dense: bool = False,
    budget: int = ...,
) -> BatchTable:
    """Return the table of `batch.scan`; raise `CorruptRecordError` for any fault.

    Checked are headers, CRCs, offsets that ascend from batch to batch, each record's framing and
    offset delta, the count of records, and that no byte is left over. With ``dense`` offsets must
    also have no gaps, within and between batches, as in a metadata log. Compressed records are
    inflated to be checked, to at most ``budget`` bytes.
    """
