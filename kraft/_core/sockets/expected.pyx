"""Answers to requests that have not come yet, in the order in which they are expected.

`mover` compares each request with the first of them, and answers it without Python's side. A list
has one owner at a time; see `data_loop` for who that is. Used by `data_loop`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kraft._core.sockets.incoming cimport SMALL_SIZE
from kraft._core.sockets.outgoing cimport Amount, Outgoing
from kraft._core.sockets.responses cimport MOST_COPIED, release, response_of

cdef enum:
    # Up to the end of the correlation id, in a request without its size field and in a response.
    LEAST_EXPECTED = 8


cdef ExpectedList expected_of(requests, bint is_local) except *:
    cdef ExpectedList found = ExpectedList(NULL, NULL, 0)
    cdef Expected *one
    try:
        for request, pieces in requests:
            one = new_expected(request, pieces, is_local)
            if found.count:
                found.last.next = one
            else:
                found.first = one
            found.last = one
            found.count += 1
    except BaseException:
        drop_expected(&found)
        raise
    return found


cdef Expected *new_expected(bytes request, pieces, bint is_local) except NULL:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(request)
    cdef Amount amount = Amount(0, 0, 0)
    cdef Outgoing *answer
    cdef Expected *one
    if not LEAST_EXPECTED <= size <= SMALL_SIZE - 4:
        raise ValueError(f"a request of {size} bytes cannot be expected")
    answer = response_of(pieces, is_local, &amount)
    if (
        answer == NULL or answer.segments[0].fd >= 0
        or answer.segments[0].size < LEAST_EXPECTED or amount.memory > MOST_COPIED
    ):
        if answer != NULL:
            release(answer)
        raise ValueError("an answer begins with its header, and has little in memory")
    one = <Expected *>malloc(sizeof(Expected) + <size_t>size)
    if one == NULL:
        release(answer)
        raise MemoryError
    one.next = NULL
    one.answer = answer
    one.amount = amount
    one.size = size
    one.request = <uint8_t *>(one + 1)
    memcpy(one.request, PyBytes_AS_STRING(request), <size_t>size)
    return one


cdef void drop_expected(ExpectedList *dropped):
    """Free answers that were not given; the list is empty afterwards."""
    cdef Expected *one = dropped.first
    cdef Expected *following
    dropped[0] = ExpectedList(NULL, NULL, 0)
    while one != NULL:
        following = one.next
        release(one.answer)
        free(one)
        one = following
