# Responses of Python's pieces; see responses.pyx.

from kraft._core.sockets.outgoing cimport Amount, Outgoing

cdef enum:
    # A response's bytes in memory up to this size are copied: cheaper than to release them later.
    MOST_COPIED = 64 * 1024

# Returns a response of bytes, buffers and FileSlices, and adds to `amount`; NULL for an empty one.
# To a local peer, mapped slices are sent from memory.
cdef Outgoing *response_of(pieces, bint is_local, Amount *amount) except? NULL
# Frees a response that no thread uses any more.
cdef void release(Outgoing *one)
