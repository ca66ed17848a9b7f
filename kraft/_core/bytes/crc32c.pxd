# CRC-32C without the GIL; see crc32c.pyx.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c_of(const uint8_t *p, Py_ssize_t size) except? 0 nogil
