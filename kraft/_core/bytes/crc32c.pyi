"""CRC-32C of bytes in memory, for the compiled core; Python calls ``checksum.crc32c``."""

from typing_extensions import Buffer

HAS_INSTRUCTION: bool

def crc32c(data: Buffer) -> int:
    """Return the checksum of a buffer, as ``checksum.crc32c`` does; releases the GIL."""
