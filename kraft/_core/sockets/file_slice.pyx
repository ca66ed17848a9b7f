"""Parts of files that a response contains without a copy of their bytes.

A `SharedFile` has no ``close``: its descriptor is closed with its last reference. A response that
contains a `FileSlice` refers to the file until its bytes are sent. The owner of a file therefore
drops its own reference whenever it wants, also while responses are being sent, and no descriptor
number can come to mean another file meanwhile.

Used by the handlers of ``kraft.network`` and by `data_loop`, which sends slices with sendfile.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix.types cimport off_t

from kraft.errors import StorageError

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char *path, int flags, ...)
    enum:
        O_RDONLY
        O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pread(int fd, void *data, size_t size, off_t offset)
    int close(int fd)


cdef class SharedFile:
    def __cinit__(self, path):
        cdef int code = 0
        self._fd = -1
        self.path = os.fspath(path)
        encoded = os.fsencode(self.path)
        cdef const char *name = encoded
        with nogil:
            self._fd = c_open(name, O_RDONLY | O_CLOEXEC)
            if self._fd < 0:
                code = errno
        if code:
            raise StorageError(f"cannot open {self.path}: {os.strerror(code)}")

    def __dealloc__(self):
        if self._fd >= 0:
            close(self._fd)

    def __repr__(self):
        return f"SharedFile({self.path!r})"

    def fileno(self):
        return self._fd


cdef class FileSlice:
    def __cinit__(self, SharedFile file not None, int64_t position, int64_t size):
        if position < 0 or size < 0 or position > (1 << 62) or size > 0x7FFFFFFF:
            raise ValueError(
                f"a slice of {size} bytes at {position}: both are at least 0, and the size is below "
                f"2 GiB"
            )
        self.file = file
        self.position = position
        self.size = size

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"FileSlice({self.file!r}, {self.position}, {self.size})"

    def read(self, int64_t start, int64_t most):
        cdef Py_ssize_t size = min(most, self.size - start), done = 0, now = 0
        cdef char *data
        cdef int code = 0
        if start < 0 or size < 0:
            raise ValueError(f"{most} bytes at {start} of a slice of {self.size} bytes")
        content = PyBytes_FromStringAndSize(NULL, size)
        data = PyBytes_AS_STRING(content)
        with nogil:
            while done < size:
                now = pread(
                    self.file._fd, data + done, <size_t>(size - done),
                    <off_t>(self.position + start + done),
                )
                if now < 0:
                    code = errno
                    if code == EINTR:
                        continue
                    break
                if now == 0:
                    break
                done += now
        if now < 0:
            raise StorageError(f"cannot read {self.file.path}: {os.strerror(code)}")
        if done < size:
            raise StorageError(
                f"{self.file.path} ends at {self.position + start + done}, within a slice of "
                f"{self.size} bytes at {self.position}"
            )
        return content
