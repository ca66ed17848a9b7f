"""Responses of Python's pieces: bytes, buffers and FileSlices become an `Outgoing`, and end.

The side of the event loop's thread, with the GIL; `outgoing` sends them. Used by `data_loop` and
`expected`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kraft._core.sockets.outgoing cimport Amount, Outgoing, outgoing_copies, outgoing_new

from kraft._core.bytes.file_slice import FileSlice


cdef void release(Outgoing *one):
    """Free a response that the thread does not use any more."""
    if one.references != NULL:
        Py_DECREF(<object>one.references)
    free(one)


cdef Py_ssize_t size_of(piece):
    """Return the number of bytes of a bytes object or a memoryview."""
    if isinstance(piece, bytes):
        return PyBytes_GET_SIZE(piece)
    return PyMemoryView_GET_BUFFER(piece).len


cdef const uint8_t *bytes_of(piece):
    if isinstance(piece, bytes):
        return <const uint8_t *>PyBytes_AS_STRING(piece)
    return <const uint8_t *>PyMemoryView_GET_BUFFER(piece).buf


cdef Outgoing *response_of(pieces, bint is_local, Amount *amount) except? NULL:
    """Return a response of bytes, buffers and FileSlices, and its amount; NULL for an empty one.

    Raises ValueError for a slice with a size or position below 0.
    """
    cdef list kept = []
    cdef int64_t slice_size
    for piece in pieces:
        if isinstance(piece, FileSlice):
            slice_size = piece.size
            if slice_size < 0 or piece.position < 0:
                raise ValueError(f"{slice_size} bytes at {piece.position} of a file")
            if slice_size:
                amount.size += slice_size
                amount.slices += 1
                kept.append(piece)
            continue
        if not isinstance(piece, bytes):
            piece = PyMemoryView_FromObject(piece)
            if not piece.contiguous:
                piece = bytes(piece)
        size = size_of(piece)
        if size:
            amount.size += size
            amount.memory += size
            kept.append(piece)
    return segments_of(kept, is_local, amount) if kept else NULL


cdef Outgoing *segments_of(list pieces, bint is_local, const Amount *amount) except NULL:
    """Return a response of non-empty pieces: bytes, contiguous memoryviews and FileSlices."""
    cdef bint is_copied = amount.memory <= MOST_COPIED
    cdef Outgoing *response = outgoing_new(
        <int>len(pieces), <Py_ssize_t>amount.memory if is_copied else 0
    )
    cdef uint8_t *copies
    cdef int at = 0
    if response == NULL:
        raise MemoryError
    copies = outgoing_copies(response)
    for piece in pieces:
        if isinstance(piece, FileSlice):
            response.slices += 1
            if is_local and piece.mapped is not None:
                response.segments[at].data = bytes_of(piece.mapped)
            else:
                response.segments[at].data = NULL
                response.has_unmapped = True
            try:
                response.segments[at].fd = piece.fileno()
            except BaseException:
                free(response)
                raise
            response.segments[at].position = piece.position
            response.segments[at].size = piece.size
        else:
            response.segments[at].fd = -1
            response.segments[at].data = bytes_of(piece)
            response.segments[at].size = size_of(piece)
            if is_copied:
                memcpy(copies, response.segments[at].data, <size_t>response.segments[at].size)
                response.segments[at].data = copies
                copies += response.segments[at].size
        at += 1
    if amount.slices or not is_copied:
        Py_INCREF(pieces)
        response.references = <void *>pieces
    return response
