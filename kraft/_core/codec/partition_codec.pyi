"""C codecs of the records of partitions and topics; see ``partition_codec.pxd``."""

def reason_text(reason: int) -> str:
    """Return the sentence for a negative reason code of the C parsers."""
