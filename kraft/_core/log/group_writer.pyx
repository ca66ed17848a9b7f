"""Group commit without the GIL: append to one file, with one sync for all waiting writes.

A ring of buffers to append, and the loop of the thread that appends them::

    loop's thread    put put hand_over   put put hand_over   take_done   put hand_over …
    this thread              [ write, sync       ][ write, sync              ][ write, sync

Appends that are handed over during a sync go into the next write, whatever Python does meanwhile:
the disk never waits for the interpreter. After each sync the thread writes a note about the last
append of the group to another file (not synced) and raises the eventfd. While no group is being
written, the loop's thread may write and sync by itself (`write_now`), which saves two thread
switches.

Invariants: appends reach the file in the order of `put`; an append is done once a sync that began
after its write has returned. After a failed write or sync nothing more is written or done: the
kernel may have dropped the dirty pages, and reports that once. Used by the writer of
``kraft.server``; uses `disk`.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from posix.types cimport off_t

from kraft._core.log.disk cimport OsFile

from kraft.errors import StorageError

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *condition, void *attributes)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_destroy(pthread_cond_t *condition)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    Py_ssize_t pwritev(int fd, const iovec *buffers, int count, off_t offset)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int fd)
    Py_ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
    Py_ssize_t c_write "write"(int fd, const void *data, size_t size)

cdef enum:
    SLOTS = 1024            # a power of two; further appends wait in Python
    MOST_VECTORS = 512      # of one pwritev; the kernel's bound (IOV_MAX) is 1024
    MOST_NOTE_BYTES = 128

cdef struct Append:
    Py_buffer view
    int64_t note_position
    int note_size
    char note[MOST_NOTE_BYTES]


cdef class GroupWriter:
    """See ``group_writer.pyi``."""

    cdef pthread_mutex_t _lock
    cdef pthread_cond_t _has_work
    cdef Append _ring[SLOTS]
    cdef uint64_t _put              # counts of appends put, handed over, synced, and taken
    cdef uint64_t _handed
    cdef uint64_t _done
    cdef uint64_t _taken
    cdef bint _closing
    cdef int _code                  # why it failed, or 0
    cdef bint _in_sync              # it failed in a sync, not in a write
    cdef OsFile _file
    cdef OsFile _notes
    cdef int64_t _position          # of the next write
    cdef int _signal_fd
    cdef readonly uint64_t sync_count

    def __cinit__(self, int signal_fd, OsFile notes not None):
        pthread_mutex_init(&self._lock, NULL)
        pthread_cond_init(&self._has_work, NULL)
        self._signal_fd = signal_fd
        self._notes = notes

    def __dealloc__(self):
        while self._taken < self._put:
            PyBuffer_Release(&self._ring[self._taken % SLOTS].view)
            self._taken += 1
        pthread_mutex_destroy(&self._lock)
        pthread_cond_destroy(&self._has_work)

    @property
    def pending(self):
        return self._put - self._taken

    def set_position(self, OsFile file not None, int64_t position):
        assert self._put == self._taken, "appends are under way"
        self._file = file
        self._position = position

    def put(self, data, int64_t note_position, bytes note not None):
        cdef Append *append = &self._ring[self._put % SLOTS]
        assert len(note) <= MOST_NOTE_BYTES and self._file is not None
        if self._put - self._taken == SLOTS:
            return False
        PyObject_GetBuffer(data, &append.view, PyBUF_SIMPLE)
        append.note_position = note_position
        append.note_size = <int>len(note)
        memcpy(append.note, <const char *>note, len(note))
        self._put += 1
        return True

    def hand_over(self):
        if self._handed == self._put:
            return
        with nogil:
            pthread_mutex_lock(&self._lock)
            self._handed = self._put
            pthread_cond_signal(&self._has_work)
            pthread_mutex_unlock(&self._lock)

    def write_now(self):
        cdef uint64_t first = self._handed, count = self._put - first
        assert first == self._taken, "appends are under way"
        assert count <= MOST_VECTORS
        if count == 0 or self._code:
            return
        with nogil:
            # The other thread sees these appends only when they are done: it waits for
            # handed-over appends, and all of those are done.
            if self._write_group(first, count):
                pthread_mutex_lock(&self._lock)
                self._handed = self._done = first + count
                pthread_mutex_unlock(&self._lock)

    def take_done(self):
        cdef uint64_t done
        cdef int code
        with nogil:
            pthread_mutex_lock(&self._lock)
            done = self._done
            code = self._code
            pthread_mutex_unlock(&self._lock)
        count = done - self._taken
        while self._taken < done:
            PyBuffer_Release(&self._ring[self._taken % SLOTS].view)
            self._taken += 1
        if code and not count:
            verb = "sync" if self._in_sync else "append to"
            raise StorageError(f"cannot {verb} {self._file.path}: {os.strerror(code)}")
        return count

    def close(self):
        with nogil:
            pthread_mutex_lock(&self._lock)
            self._handed = self._put
            self._closing = True
            pthread_cond_signal(&self._has_work)
            pthread_mutex_unlock(&self._lock)

    def run(self):
        with nogil:
            self._run()

    cdef void _run(self) noexcept nogil:
        cdef uint64_t first, count, one = 1
        cdef bint failed
        while True:
            pthread_mutex_lock(&self._lock)
            while self._handed == self._done and not self._closing:
                pthread_cond_wait(&self._has_work, &self._lock)
            first = self._done
            count = self._handed - first
            pthread_mutex_unlock(&self._lock)
            # `write_now` may have failed; appends handed over since are not written.
            if count == 0 or self._code != 0:
                return
            if count > MOST_VECTORS:
                count = MOST_VECTORS
            failed = not self._write_group(first, count)
            pthread_mutex_lock(&self._lock)
            if not failed:
                self._done = first + count
            pthread_mutex_unlock(&self._lock)
            c_write(self._signal_fd, &one, sizeof(one))
            if failed:
                return

    cdef bint _write_group(self, uint64_t first, uint64_t count) noexcept nogil:
        """Append `count` buffers, sync, and write the note of the last."""
        cdef iovec vectors[MOST_VECTORS]
        cdef uint64_t i
        cdef int next_vector = 0
        cdef Py_ssize_t written
        cdef Append *last = &self._ring[(first + count - 1) % SLOTS]
        for i in range(count):
            vectors[i].iov_base = self._ring[(first + i) % SLOTS].view.buf
            vectors[i].iov_len = <size_t>self._ring[(first + i) % SLOTS].view.len
        while next_vector < <int>count:
            written = pwritev(
                self._file._fd, vectors + next_vector, <int>count - next_vector,
                <off_t>self._position,
            )
            if written < 0:
                if errno == EINTR:
                    continue
                self._fail(errno, False)
                return False
            self._position += written
            while next_vector < <int>count and (
                <size_t>written >= vectors[next_vector].iov_len
            ):
                written -= <Py_ssize_t>vectors[next_vector].iov_len
                next_vector += 1
            if next_vector < <int>count:
                vectors[next_vector].iov_base = (
                    <char *>vectors[next_vector].iov_base + written
                )
                vectors[next_vector].iov_len -= <size_t>written
        if fdatasync(self._file._fd) != 0:
            self._fail(errno, True)
            return False
        self.sync_count += 1
        self._write_note(last)
        return True

    cdef void _write_note(self, const Append *append) noexcept nogil:
        """Write the note of a synced append.

        A failed write is harmless: the older note stays true. A partial write is continued, because
        a torn note in either slot would be unreadable.
        """
        cdef int done = 0
        cdef Py_ssize_t written
        while done < append.note_size:
            written = pwrite(
                self._notes._fd, append.note + done, append.note_size - done,
                <off_t>(append.note_position + done),
            )
            if written > 0:
                done += <int>written
            elif written == 0 or errno != EINTR:
                return

    cdef void _fail(self, int code, bint in_sync) noexcept nogil:
        pthread_mutex_lock(&self._lock)
        self._code = code
        self._in_sync = in_sync
        pthread_mutex_unlock(&self._lock)
