"""The file-system port: the operations through which logs and snapshots use files.

`Disk` and `File` are the protocols that another disk (a simulated one, for example) implements.
`OsDisk` and `OsFile` are the operating system's calls, without the GIL around every call that may
wait. `Mapping` is a file's bytes, mapped read-only and sliced without copying.

Invariants: a failure of the operating system is a `StorageError` that names the file and the
operation. A failed sync is never repeated: the kernel may have dropped the dirty pages that it
could not write, and a second, successful sync would prove nothing. A mapping is unmapped with its
last slice. No process may shorten a file while slices of the removed part exist
(`kraft._core.log.segment` ensures it). Used by `log`, `segment` and the snapshot modules.
"""

import os
from typing import Protocol

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_SIMPLE,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.errno cimport EINTR, ENOENT, ENOSYS, errno
from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap
from posix.types cimport off_t

cimport cython

from kraft.errors import MissingFileError, StorageError

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    Py_ssize_t pwritev(int fd, const iovec *buffers, int count, off_t offset)

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
    Py_ssize_t pread(int fd, void *data, size_t size, off_t offset)
    int fdatasync(int fd)
    int fsync(int fd)
    int ftruncate(int fd, off_t size)
    int close(int fd)

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char *path, int flags, ...)
    int sync_file_range(int fd, off_t offset, off_t size, unsigned int flags)
    enum:
        SYNC_FILE_RANGE_WRITE
        O_RDONLY
        O_RDWR
        O_CREAT
        O_CLOEXEC
        O_DIRECTORY

cdef extern from "<sys/stat.h>" nogil:
    struct stat_t "stat":
        off_t st_size
    int fstat(int fd, stat_t *out)

cdef enum:
    FILE_MODE = 0o644       # before the process's umask
    MOST_BUFFERS = 64       # buffers in one pwritev; the kernel's own bound (IOV_MAX) is 1024


class File(Protocol):
    path: str

    def append(self, buffers, /): ...
    def write_at(self, position, data, /): ...
    def read_at(self, position, size, /): ...
    def map(self, size, /): ...
    def truncate(self, size: int, /) -> None: ...
    def begin_sync(self, position: int, size: int, /) -> None: ...
    def sync(self) -> None: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A file system, as far as logs and snapshots use one. Paths are strings."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...
    def list(self, directory: str, /) -> list[str]: ...
    def rename(self, source: str, target: str, /) -> None: ...
    def remove(self, path: str, /) -> None: ...
    def remove_directory(self, path: str, /) -> None: ...
    def sync_directory(self, directory: str, /) -> None: ...
    def make_directory(self, directory: str, /) -> None: ...
    def exists(self, path: str, /) -> bool: ...
    def size(self, path: str, /) -> int: ...


def write_atomically(disk, str path, data):
    cdef str temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.append([data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path) or ".")


@cython.final
cdef class Mapping:
    """Read-only mapped bytes with the buffer protocol; made by `File.map`."""

    def __dealloc__(self):
        if self._pages != NULL:
            # Of many pages that were read it takes milliseconds.
            with nogil:
                munmap(self._pages, <size_t>self.capacity)
            self._pages = NULL

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        self._shape[0] = <Py_ssize_t>self.size
        self._strides[0] = 1
        fill_view(view, self, self.data, <Py_ssize_t>self.size, flags, self._shape, self._strides)

    cdef object slice(self, int64_t start, int64_t stop):
        cdef MappedSlice part = MappedSlice.__new__(MappedSlice)
        part._mapping = self
        part._data = self.data + start
        part._size = <Py_ssize_t>(stop - start)
        return PyMemoryView_FromObject(part)


@cython.final
@cython.freelist(32)
cdef class MappedSlice:
    """A part of a mapping; memoryviews over it keep it alive."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        fill_view(view, self, self._data, self._size, flags, &self._size, self._mapping._strides)


cdef int fill_view(
    Py_buffer *view, object owner, const uint8_t *data, Py_ssize_t size, int flags,
    Py_ssize_t *shape, Py_ssize_t *strides,
) except -1:
    if flags & PyBUF_WRITABLE:
        raise BufferError("mapped bytes are read-only")
    strides[0] = 1
    view.buf = <void *>data
    view.obj = owner
    view.len = size
    view.itemsize = 1
    view.readonly = 1
    view.ndim = 1
    view.format = NULL
    if flags & PyBUF_FORMAT:
        # A caller that asks for a format reads one; Cython's memoryviews do so without a check for
        # NULL.
        view.format = b"B"
    view.shape = shape if flags & PyBUF_ND else NULL
    view.strides = strides if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
    view.suboffsets = NULL
    view.internal = NULL
    return 0


cdef Mapping mapping_of_buffer(object buffer):
    cdef Mapping mapping = Mapping.__new__(Mapping)
    mapping._owner = memoryview(buffer).cast("B")
    mapping.data = <const uint8_t *>PyMemoryView_GET_BUFFER(mapping._owner).buf
    mapping.size = mapping.capacity = PyMemoryView_GET_BUFFER(mapping._owner).len
    return mapping


cdef class OsFile:
    def __cinit__(self):
        self._fd = -1

    def __dealloc__(self):
        if self._fd >= 0:
            close(self._fd)

    def __repr__(self):
        return f"<OsFile {self.path!r}, {self._size} bytes>"

    cdef int _check_open(self) except -1:
        if self._fd < 0:
            raise StorageError(f"{self.path}: the file is closed")
        return 0

    cdef int _check_writable(self) except -1:
        self._check_open()
        if self.read_only:
            raise StorageError(f"{self.path}: the file was opened for reading only")
        return 0

    cdef int _failed(self, str verb, int code) except -1:
        raise StorageError(f"cannot {verb} {self.path}: {os.strerror(code)}")

    def append(self, buffers):
        cdef Py_buffer views[MOST_BUFFERS]
        cdef iovec vectors[MOST_BUFFERS]
        cdef int64_t start, position
        cdef int held, count
        self._check_writable()
        start = position = self._size
        pending = list(buffers)
        while pending:
            held = count = 0
            try:
                for buffer in pending[:MOST_BUFFERS]:
                    PyObject_GetBuffer(buffer, &views[held], PyBUF_SIMPLE)
                    held += 1
                    if views[held - 1].len > 0:
                        vectors[count].iov_base = views[held - 1].buf
                        vectors[count].iov_len = <size_t>views[held - 1].len
                        count += 1
                position = write_vectors(self, vectors, count, position)
            finally:
                while held:
                    held -= 1
                    PyBuffer_Release(&views[held])
            pending = pending[MOST_BUFFERS:]
        self._size = position
        return start

    cdef int append_bytes(self, const uint8_t *data, Py_ssize_t size) except -1:
        self._check_writable()
        self._write(data, size, self._size)
        self._size += size
        return 0

    cdef int _write(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1:
        cdef Py_ssize_t written
        cdef int code = 0
        while size > 0:
            with nogil:
                written = pwrite(self._fd, data, <size_t>size, <off_t>position)
                if written < 0:
                    code = errno
            if written < 0:
                if code == EINTR:
                    continue
                self._failed("write to", code)
            data += written
            position += written
            size -= written
        return 0

    def write_at(self, int64_t position, data):
        cdef const uint8_t[::1] view = data
        self._check_writable()
        if position < 0:
            raise ValueError(f"position {position} is negative")
        if view.shape[0]:
            self._write(&view[0], view.shape[0], position)
        self._size = max(self._size, position + view.shape[0])

    def read_at(self, int64_t position, Py_ssize_t size):
        cdef Py_ssize_t done = 0, count
        cdef int code = 0
        cdef char *out
        self._check_open()
        if position < 0 or size < 0:
            raise ValueError(f"position {position} or size {size} is negative")
        size = <Py_ssize_t>min(<int64_t>size, max(self._size - position, 0))
        result = PyBytes_FromStringAndSize(NULL, size)
        out = PyBytes_AS_STRING(result)
        while done < size:
            with nogil:
                count = pread(self._fd, out + done, <size_t>(size - done), <off_t>(position + done))
                if count < 0:
                    code = errno
            if count < 0:
                if code == EINTR:
                    continue
                self._failed("read", code)
            if count == 0:
                return result[:done]
            done += count
        return result

    def map(self, int64_t size):
        self._check_open()
        if not 0 <= size <= self._size:
            raise ValueError(f"cannot map {size} bytes of a file of {self._size}")
        return self.map_ahead(size, size)

    cdef Mapping map_ahead(self, int64_t size, int64_t capacity):
        cdef Mapping mapping = Mapping.__new__(Mapping)
        cdef void *pages
        cdef int code = 0
        self._check_open()
        mapping.data = b""
        mapping.size = size
        if capacity > 0:
            with nogil:
                pages = mmap(NULL, <size_t>capacity, PROT_READ, MAP_SHARED, self._fd, 0)
                if pages == MAP_FAILED:
                    code = errno
            if code:
                self._failed("map", code)
            mapping._pages = pages
            mapping.capacity = capacity
            mapping.data = <const uint8_t *>pages
        return mapping

    def truncate(self, int64_t size):
        cdef int failed, code = 0
        self._check_writable()
        if size < 0:
            raise ValueError(f"size {size} is negative")
        with nogil:
            failed = ftruncate(self._fd, <off_t>size)
            if failed:
                code = errno
        if failed:
            self._failed("truncate", code)
        self._size = size

    def begin_sync(self, int64_t position, int64_t size):
        cdef int failed, code = 0
        self._check_writable()
        if position < 0 or size < 0:
            raise ValueError(f"position {position} or size {size} is negative")
        if size == 0:
            # The kernel would take 0 for the rest of the file.
            return
        with nogil:
            failed = sync_file_range(self._fd, <off_t>position, <off_t>size, SYNC_FILE_RANGE_WRITE)
            if failed:
                code = errno
        if failed and code != ENOSYS:
            self._failed("sync", code)

    def sync(self):
        cdef int failed, code = 0
        self._check_open()
        with nogil:
            failed = fdatasync(self._fd)
            if failed:
                code = errno
        if failed:
            self._failed("sync", code)

    def size(self):
        return self._size

    def fileno(self):
        self._check_open()
        return self._fd

    def close(self):
        cdef int fd = self._fd
        self._fd = -1
        if fd >= 0:
            with nogil:
                close(fd)


cdef int64_t write_vectors(
    OsFile file, iovec *vectors, int count, int64_t position
) except -1:
    """Write all vectors from `position` on; return the position after them."""
    cdef int first = 0, code = 0
    cdef Py_ssize_t written
    while first < count:
        with nogil:
            written = pwritev(file._fd, vectors + first, count - first, <off_t>position)
            if written < 0:
                code = errno
        if written < 0:
            if code == EINTR:
                continue
            file._failed("append to", code)
        position += written
        while first < count and <size_t>written >= vectors[first].iov_len:
            written -= <Py_ssize_t>vectors[first].iov_len
            first += 1
        if first < count:
            vectors[first].iov_base = <char *>vectors[first].iov_base + written
            vectors[first].iov_len -= <size_t>written
    return position


class OsDisk:
    __slots__ = ()

    def __repr__(self):
        return "OsDisk()"

    def open(self, path, *, create=False, read_only=False):
        cdef OsFile file = OsFile.__new__(OsFile)
        cdef int flags = O_CLOEXEC | (O_RDONLY if read_only else O_RDWR)
        cdef int fd, code = 0
        cdef stat_t status
        cdef bytes encoded = os.fsencode(path)
        cdef const char *name = encoded
        if create:
            flags |= O_CREAT
        file.path = os.fspath(path)
        file.read_only = read_only
        with nogil:
            fd = c_open(name, flags, <int>FILE_MODE)
            if fd < 0 or fstat(fd, &status) != 0:
                code = errno
        file._fd = fd
        if code:
            if code == ENOENT:
                raise MissingFileError(f"cannot open {path}: no such file")
            file._failed("open", code)
        file._size = status.st_size
        return file

    def list(self, directory):
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            raise refused("list", directory, error) from error

    def rename(self, source, target):
        try:
            os.replace(source, target)
        except OSError as error:
            raise refused("rename", source, error) from error

    def remove(self, path):
        try:
            os.unlink(path)
        except OSError as error:
            raise refused("remove", path, error) from error

    def remove_directory(self, path):
        try:
            os.rmdir(path)
        except OSError as error:
            raise refused("remove directory", path, error) from error

    def sync_directory(self, directory):
        cdef bytes encoded = os.fsencode(directory)
        cdef const char *name = encoded
        cdef int fd, failed = 0, code = 0
        with nogil:
            fd = c_open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            failed = fd < 0 or fsync(fd) != 0
            if failed:
                code = errno
            if fd >= 0:
                close(fd)
        if failed:
            raise StorageError(f"cannot sync directory {directory}: {os.strerror(code)}")

    def make_directory(self, directory):
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise refused("make directory", directory, error) from error

    def exists(self, path):
        return os.path.exists(path)

    def size(self, path):
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise refused("stat", path, error) from error


def refused(verb, path, error):
    return StorageError(f"cannot {verb} {path}: {error.strerror}")
