"""The C structs and codecs of the four records that come by the million; see
``partition_codec.pxd``.
"""

def reason_text(reason: int) -> str:
    """The words for a negative reason code of the C parsers."""
