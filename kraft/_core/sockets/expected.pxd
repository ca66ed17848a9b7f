# Answers to requests that have not come yet; see expected.pyx.

from libc.stdint cimport uint8_t

from kraft._core.sockets.outgoing cimport Amount, Outgoing

# One block of memory.
cdef struct Expected:
    Expected *next
    Outgoing *answer
    Amount amount           # of the answer
    Py_ssize_t size         # of the request, without its size field
    uint8_t *request

cdef struct ExpectedList:
    Expected *first
    Expected *last
    int count

# Returns the answers to pairs of a request and the pieces of its response, for `response_of`.
cdef ExpectedList expected_of(requests, bint is_local) except *
# Frees answers that were not given; the list is empty afterwards.
cdef void drop_expected(ExpectedList *dropped)
