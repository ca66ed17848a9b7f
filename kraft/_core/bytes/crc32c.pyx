"""CRC-32C of bytes in memory, callable without the GIL.

The ``crc32c`` package has no interface in C: its function needs the GIL at each call, and a thread
that checks a log or a snapshot would wait for it after every batch while other threads run Python.
So this module uses the CPU's CRC-32C instruction itself, where the compiler's target has it: every
x86-64 CPU from level 2 on. Elsewhere it calls the package.

An instruction takes eight bytes and depends on the one before it, so that one chain of them uses a
third of the CPU's rate. Long input is therefore cut into three lanes of KRAFT_LANE bytes, which
are computed side by side. CRCs are linear: the CRC of lane a followed by lane b is that of a
followed by zeros, XOR that of b. Tables hold the effect of these zeros on each byte of a CRC.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory

from kraft._core.bytes.checksum import crc32c as _crc32c

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define KRAFT_LANE 1024
    #if defined(__SSE4_2__) && defined(__x86_64__)
    #include <nmmintrin.h>
    #define KRAFT_HAS_CRC32C 1
    #define kraft_crc_8(crc, word) _mm_crc32_u64(crc, word)
    #define kraft_crc_1(crc, byte) _mm_crc32_u8((uint32_t)(crc), byte)
    #elif defined(__ARM_FEATURE_CRC32) && defined(__aarch64__)
    #include <arm_acle.h>
    #define KRAFT_HAS_CRC32C 1
    #define kraft_crc_8(crc, word) __crc32cd((uint32_t)(crc), word)
    #define kraft_crc_1(crc, byte) __crc32cb((uint32_t)(crc), byte)
    #else
    #define KRAFT_HAS_CRC32C 0
    #define kraft_crc_8(crc, word) (crc)
    #define kraft_crc_1(crc, byte) (crc)
    #endif

    static uint32_t kraft_zeros[4][256];

    static inline uint64_t kraft_load_8(const uint8_t *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }

    /* Fill kraft_zeros: the CRC of one bit followed by KRAFT_LANE zero bytes, then their sums. */
    static void kraft_fill_zeros(void) {
        for (int byte = 0; byte < 4; byte++) {
            for (int bit = 0; bit < 8; bit++) {
                uint64_t crc = (uint32_t)1 << (8 * byte + bit);
                for (int i = 0; i < KRAFT_LANE / 8; i++) crc = kraft_crc_8(crc, 0);
                for (int low = 0; low < 1 << bit; low++)
                    kraft_zeros[byte][(1 << bit) + low] =
                        kraft_zeros[byte][low] ^ (uint32_t)crc;
            }
        }
    }

    static inline uint64_t kraft_append_zeros(uint64_t crc) {
        return kraft_zeros[0][crc & 255] ^ kraft_zeros[1][crc >> 8 & 255]
            ^ kraft_zeros[2][crc >> 16 & 255] ^ kraft_zeros[3][crc >> 24 & 255];
    }

    static uint32_t kraft_crc32c(const uint8_t *p, size_t size) {
        uint64_t crc = 0xFFFFFFFFu;
        while (size >= 3 * KRAFT_LANE) {
            uint64_t second = 0, third = 0;
            #pragma GCC unroll 8
            for (const uint8_t *stop = p + KRAFT_LANE; p < stop; p += 8) {
                crc = kraft_crc_8(crc, kraft_load_8(p));
                second = kraft_crc_8(second, kraft_load_8(p + KRAFT_LANE));
                third = kraft_crc_8(third, kraft_load_8(p + 2 * KRAFT_LANE));
            }
            crc = kraft_append_zeros(kraft_append_zeros(crc) ^ second) ^ third;
            p += 2 * KRAFT_LANE;
            size -= 3 * KRAFT_LANE;
        }
        for (; size >= 8; p += 8, size -= 8) crc = kraft_crc_8(crc, kraft_load_8(p));
        for (; size; p++, size--) crc = kraft_crc_1(crc, *p);
        return (uint32_t)crc ^ 0xFFFFFFFFu;
    }
    """
    bint KRAFT_HAS_CRC32C
    void kraft_fill_zeros() noexcept nogil
    uint32_t kraft_crc32c(const uint8_t *p, size_t size) noexcept nogil

HAS_INSTRUCTION = bool(KRAFT_HAS_CRC32C)
if KRAFT_HAS_CRC32C:
    kraft_fill_zeros()


cdef uint32_t crc32c_of(const uint8_t *p, Py_ssize_t size) except? 0 nogil:
    if KRAFT_HAS_CRC32C:
        return kraft_crc32c(p, <size_t>size)
    with gil:
        return _crc32c(PyMemoryView_FromMemory(<char *>p, size, PyBUF_READ), 0)


def crc32c(data):
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            crc = crc32c_of(<const uint8_t *>view.buf, view.len)
        return crc
    finally:
        PyBuffer_Release(&view)
