"""Two threads that take turns at a log: while one syncs, the other writes what comes next.

Owns the two locks of that, and everything that lies between the end of one sync and the begin of
the next, without the interpreter's lock: a sync that has to wait for it would leave the disk idle.

    write turn    held to take jobs and write them
    sync turn     held to sync; taken while the write turn is still held, so that syncs keep the
                  order of writes, and given up as soon as the device has answered

    thread A   [take | write ][ sync                  ][ take | write ][ sync …
    thread B                  [ take | write … waits  ][ sync                   ][ take | write …

Invariants: one sync runs at a time, in the order of the writes; whoever holds both turns is alone
with the files. After a sync has failed none is tried again, and nothing more is told: the kernel
reports a failed write once, so that a later sync's success would prove nothing.
Fed by the writer of ``kraft.server``; feeds on `disk`.
"""

import os

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint64_t

from kraft._core.disk cimport OsFile

from kraft.errors import StorageError

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int fd)
    Py_ssize_t c_write "write"(int fd, const void *data, size_t size)


cdef class SyncTurns:
    """See ``sync_turns.pyi``."""

    cdef pthread_mutex_t _writing
    cdef pthread_mutex_t _syncing
    cdef int _signal_fd
    cdef readonly bint failed
    cdef readonly int64_t synced_sequence

    def __cinit__(self, int signal_fd):
        pthread_mutex_init(&self._writing, NULL)
        pthread_mutex_init(&self._syncing, NULL)
        self._signal_fd = signal_fd

    def __dealloc__(self):
        pthread_mutex_destroy(&self._writing)
        pthread_mutex_destroy(&self._syncing)

    def take(self):
        with nogil:
            pthread_mutex_lock(&self._writing)

    def take_sync(self):
        with nogil:
            pthread_mutex_lock(&self._syncing)

    def release_sync(self):
        pthread_mutex_unlock(&self._syncing)

    def release(self):
        pthread_mutex_unlock(&self._writing)

    def fail(self):
        self.failed = True

    def tell(self, int64_t sequence):
        if not self.failed:
            self.synced_sequence = max(self.synced_sequence, sequence)
        self._signal()

    cdef void _signal(self) noexcept nogil:
        cdef uint64_t one = 1
        c_write(self._signal_fd, &one, sizeof(one))

    def sync(self, OsFile file not None, int64_t sequence):
        cdef int fd = file._fd
        cdef int code = 0
        cdef bint failed
        with nogil:
            pthread_mutex_lock(&self._syncing)
            pthread_mutex_unlock(&self._writing)
            failed = self.failed
            if not failed:
                if fdatasync(fd) != 0:
                    code = errno
                    self.failed = failed = True
                else:
                    self.synced_sequence = max(self.synced_sequence, sequence)
            pthread_mutex_unlock(&self._syncing)
            if not failed:
                self._signal()
        if code:
            raise StorageError(f"cannot sync {file.path}: {os.strerror(code)}")
        return not failed
