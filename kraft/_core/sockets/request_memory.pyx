"""The memory of large requests in progress, counted by several threads.

A listener has one `RequestMemory`. Its connections on the event loop and those of a `DataLoop`
count the buffers of large requests in it. Invariant: it never counts more than the largest ``most``
that a caller has given. Used by ``kraft.network.listener`` and `data_loop`.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    static inline int64_t kraft_atomic_add(int64_t *value, int64_t more) {
        return __atomic_add_fetch(value, more, __ATOMIC_SEQ_CST);
    }
    static inline int64_t kraft_atomic_load(int64_t *value) {
        return __atomic_load_n(value, __ATOMIC_SEQ_CST);
    }
    static inline int kraft_atomic_replace(int64_t *value, int64_t *seen, int64_t other) {
        return __atomic_compare_exchange_n(value, seen, other, 0, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
    }
    """
    int64_t kraft_atomic_add(int64_t *value, int64_t more) noexcept nogil
    int64_t kraft_atomic_load(int64_t *value) noexcept nogil
    bint kraft_atomic_replace(int64_t *value, int64_t *seen, int64_t other) noexcept nogil


cdef class RequestMemory:
    cdef bint take_bytes(self, int64_t more, int64_t most) noexcept nogil:
        cdef int64_t taken = kraft_atomic_load(&self._taken)
        while taken <= most - more:
            if kraft_atomic_replace(&self._taken, &taken, taken + more):
                return True
        return False

    cdef void give_back_bytes(self, int64_t size) noexcept nogil:
        kraft_atomic_add(&self._taken, -size)

    @property
    def taken(self):
        return kraft_atomic_load(&self._taken)

    def take(self, int64_t more, int64_t most):
        return self.take_bytes(more, most)

    def give_back(self, int64_t size):
        self.give_back_bytes(size)
