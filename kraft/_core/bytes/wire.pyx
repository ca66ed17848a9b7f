"""Kafka's wire types: read from and write to any buffer of bytes.

Encodes single values: fixed integers (big endian), varints, strings, bytes, array counts, uuids
and tagged sections. Modules above know the meaning of the values.

Invariants: a Reader never reads after its end, and keeps the buffer open while it exists, so views
of a mapped file stay valid. A claimed length or count is compared with the bytes left, and a count
also with the budget of elements, before memory is allocated for it.

Layout (``KIP-482`` for the compact forms; n is the uvarint of size + 1, 0 meaning null)::

    string   i16 size | utf-8          compact   uvarint n | utf-8
    bytes    i32 size | bytes          compact   uvarint n | bytes
    array    i32 count | elements      compact   uvarint n | elements
    tagged   uvarint count | (uvarint tag | uvarint size | bytes), tags ascending
    uuid     16 bytes; as text URL-safe base64 without padding, 22 characters
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT16_MAX, INT32_MAX
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kraft.errors import BudgetExceededError, CorruptRecordError, InvalidRequestError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

DEFAULT_BUDGET = 1 << 24

cdef const uint8_t NOTHING = 0


cdef class Reader:
    def __cinit__(
        self, source, Py_ssize_t position=0, end=None, *, int64_t budget=DEFAULT_BUDGET
    ):
        PyObject_GetBuffer(source, &self._view, PyBUF_SIMPLE)
        self._held = True
        self._source = source
        cdef Py_ssize_t stop = self._view.len if end is None else end
        if not 0 <= position <= stop <= self._view.len:
            raise ValueError(
                f"bytes {position} to {stop} are outside of a buffer of {self._view.len} bytes"
            )
        if budget < 0:
            raise ValueError(f"a budget of {budget} elements")
        self.base = <const uint8_t *>self._view.buf if self._view.buf != NULL else &NOTHING
        self.cursor = self.base + position
        self.end = self.base + stop
        self._budget = budget

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._view)

    @property
    def position(self):
        return self.cursor - self.base

    @property
    def limit(self):
        return self.end - self.base

    @property
    def budget(self):
        return self._budget

    def remaining(self):
        return self.end - self.cursor

    def seek(self, Py_ssize_t position):
        if not 0 <= position <= self.end - self.base:
            readable = self.end - self.base
            raise ValueError(f"byte {position} is outside of the {readable} readable bytes")
        self.cursor = self.base + position

    def slice(self, Py_ssize_t size):
        cdef const uint8_t *start = self.take(size)
        return Reader(
            self._source, start - self.base, self.cursor - self.base, budget=self._budget
        )

    cdef int fail(self, str reason, const uint8_t *where) except -1:
        if where == NULL:
            where = self.cursor
        raise CorruptRecordError(reason, position=where - self.base)

    cdef const uint8_t *take(self, Py_ssize_t size) except NULL:
        cdef const uint8_t *start = self.cursor
        if unlikely(size < 0 or size > self.end - start):
            self.fail(f"{size} bytes are needed where {self.end - start} are left", NULL)
        self.cursor = start + size
        return start

    cpdef int8_t read_int8(self) except? -1:
        return <int8_t>self.take(1)[0]

    cpdef int16_t read_int16(self) except? -1:
        return <int16_t>load_u16(self.take(2))

    cpdef int32_t read_int32(self) except? -1:
        return <int32_t>load_u32(self.take(4))

    cpdef int64_t read_int64(self) except? -1:
        return <int64_t>load_u64(self.take(8))

    cpdef uint16_t read_uint16(self) except? 0xffff:
        return load_u16(self.take(2))

    cpdef uint32_t read_uint32(self) except? 0xffffffff:
        return load_u32(self.take(4))

    cpdef double read_float64(self) except? -1:
        cdef uint64_t bits = load_u64(self.take(8))
        cdef double value
        memcpy(&value, &bits, 8)
        return value

    cpdef bint read_bool(self) except -1:
        cdef const uint8_t *p = self.take(1)
        if unlikely(p[0] > 1):
            self.fail(f"a boolean is 0 or 1, not {p[0]}", p)
        return p[0]

    cpdef uint32_t read_uvarint(self) except? 0xffffffff:
        cdef uint32_t value = 0
        cdef const uint8_t *p = get_uvarint(self.cursor, self.end, &value)
        if unlikely(p == NULL):
            self.fail("a varint of 32 bits is cut short or too long", NULL)
        self.cursor = p
        return value

    cpdef int32_t read_varint(self) except? -1:
        cdef int32_t value = 0
        cdef const uint8_t *p = get_varint(self.cursor, self.end, &value)
        if unlikely(p == NULL):
            self.fail("a varint of 32 bits is cut short or too long", NULL)
        self.cursor = p
        return value

    cpdef uint64_t read_uvarlong(self) except? 0xffffffffffffffff:
        cdef uint64_t value = 0
        cdef const uint8_t *p = get_uvarlong(self.cursor, self.end, &value)
        if unlikely(p == NULL):
            self.fail("a varint of 64 bits is cut short or too long", NULL)
        self.cursor = p
        return value

    cpdef int64_t read_varlong(self) except? -1:
        cdef int64_t value = 0
        cdef const uint8_t *p = get_varlong(self.cursor, self.end, &value)
        if unlikely(p == NULL):
            self.fail("a varint of 64 bits is cut short or too long", NULL)
        self.cursor = p
        return value

    cdef int64_t take_string_size(self, bint compact, bint nullable) except? -2:
        return take_size(self, compact, nullable, True)

    cdef int64_t take_bytes_size(self, bint compact, bint nullable) except? -2:
        return take_size(self, compact, nullable, False)

    cdef str take_string(self, bint compact, bint nullable):
        cdef int64_t size = take_size(self, compact, nullable, True)
        cdef const uint8_t *start
        if size < 0:
            return None
        start = self.take(size)
        try:
            return PyUnicode_DecodeUTF8(<const char *>start, size, NULL)
        except UnicodeDecodeError as error:
            self.fail(
                f"a string is not UTF-8: {error.reason}", start + <Py_ssize_t>error.start
            )

    cdef bytes take_bytes(self, bint compact, bint nullable):
        cdef int64_t size = take_size(self, compact, nullable, False)
        if size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.take(size), size)

    cdef int64_t take_count(
        self, bint compact, bint nullable, Py_ssize_t element_size
    ) except? -2:
        cdef const uint8_t *start = self.cursor
        cdef int64_t count
        if element_size < 1:
            raise ValueError("an element takes at least one byte")
        if compact:
            count = <int64_t>self.read_uvarint() - 1
        else:
            count = self.read_int32()
        if unlikely(count < 0):
            if count < -1 or not nullable:
                self.fail(f"an array of {count} elements", start)
            return -1
        if unlikely(count > (self.end - self.cursor) // element_size):
            raise BudgetExceededError(
                f"an array claims {count} elements of at least {element_size} bytes where "
                f"{self.end - self.cursor} bytes are left",
                position=start - self.base,
            )
        if unlikely(count > self._budget):
            raise BudgetExceededError(
                f"an array claims {count} elements where {self._budget} may still be read",
                position=start - self.base,
            )
        self._budget -= count
        return count

    def read_string(self):
        return self.take_string(False, False)

    def read_nullable_string(self):
        return self.take_string(False, True)

    def read_compact_string(self):
        return self.take_string(True, False)

    def read_compact_nullable_string(self):
        return self.take_string(True, True)

    def read_bytes(self):
        return self.take_bytes(False, False)

    def read_nullable_bytes(self):
        return self.take_bytes(False, True)

    def read_compact_bytes(self):
        return self.take_bytes(True, False)

    def read_compact_nullable_bytes(self):
        return self.take_bytes(True, True)

    def read_array_count(self, Py_ssize_t element_size=1):
        return self.take_count(False, False, element_size)

    def read_nullable_array_count(self, Py_ssize_t element_size=1):
        return self.take_count(False, True, element_size)

    def read_compact_array_count(self, Py_ssize_t element_size=1):
        return self.take_count(True, False, element_size)

    def read_compact_nullable_array_count(self, Py_ssize_t element_size=1):
        return self.take_count(True, True, element_size)

    def read_uuid(self):
        return PyBytes_FromStringAndSize(<const char *>self.take(16), 16)

    def read_raw(self, Py_ssize_t size):
        return PyBytes_FromStringAndSize(<const char *>self.take(size), size)

    def read_view(self, Py_ssize_t size):
        cdef const uint8_t *start = self.take(size)
        if self._memory is None:
            self._memory = memoryview(self._source).cast("B")
        return self._memory[start - self.base:self.cursor - self.base]

    cpdef dict read_tagged(self):
        cdef dict fields = {}
        cdef const uint8_t *start = self.cursor
        cdef uint32_t size, tag, _i, count = self.read_uvarint()
        cdef int64_t previous = -1
        if count == 0:
            return fields
        if unlikely(count > (self.end - self.cursor) // 2 or count > self._budget):
            raise BudgetExceededError(
                f"a section claims {count} tagged fields where {self.end - self.cursor} bytes are "
                f"left and {self._budget} elements may still be read",
                position=start - self.base,
            )
        self._budget -= count
        for _i in range(count):
            start = self.cursor
            tag = self.read_uvarint()
            if unlikely(tag <= previous):
                self.fail(f"tag {tag} follows tag {previous}", start)
            previous = tag
            size = self.read_uvarint()
            if unlikely(size > self.end - self.cursor):
                raise BudgetExceededError(
                    f"tag {tag} claims {size} bytes where {self.end - self.cursor} are left",
                    position=start - self.base,
                )
            fields[tag] = PyBytes_FromStringAndSize(<const char *>self.take(size), size)
        return fields


cdef int64_t take_size(Reader reader, bint compact, bint nullable, bint text) except? -2:
    """Read the length of a string or bytes, checked against the bytes left; return -1 for null."""
    cdef const uint8_t *start = reader.cursor
    cdef int64_t size
    if compact:
        size = <int64_t>reader.read_uvarint() - 1
    elif text:
        size = reader.read_int16()
    else:
        size = reader.read_int32()
    if unlikely(size < 0):
        if size < -1 or not nullable:
            reader.fail(f"a length of {size}", start)
        return -1
    if unlikely(size > reader.end - reader.cursor):
        raise BudgetExceededError(
            f"a length of {size} where {reader.end - reader.cursor} bytes are left",
            position=start - reader.base,
        )
    if unlikely(text and size > INT16_MAX):
        reader.fail(f"a string of {size} bytes is longer than 32767", start)
    return size


cdef class Writer:
    def __cinit__(self, Py_ssize_t capacity=256):
        if capacity < 0:
            raise ValueError(f"a capacity of {capacity} bytes")
        self.data = <uint8_t *>realloc(NULL, max(capacity, 16))
        if self.data == NULL:
            raise MemoryError
        self.capacity = max(capacity, 16)

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def getvalue(self):
        return PyBytes_FromStringAndSize(<const char *>self.data, self.size)

    def clear(self):
        self.size = 0

    cdef uint8_t *reserve(self, Py_ssize_t size) except NULL:
        cdef Py_ssize_t wanted
        cdef uint8_t *moved
        if unlikely(size > self.capacity - self.size):
            wanted = max(self.capacity * 2, self.size + size)
            moved = <uint8_t *>realloc(self.data, wanted)
            if moved == NULL:
                raise MemoryError
            self.data = moved
            self.capacity = wanted
        self.size += size
        return self.data + self.size - size

    cpdef int write_int8(self, int8_t value) except -1:
        self.reserve(1)[0] = <uint8_t>value
        return 0

    cpdef int write_int16(self, int16_t value) except -1:
        store_u16(self.reserve(2), <uint16_t>value)
        return 0

    cpdef int write_int32(self, int32_t value) except -1:
        store_u32(self.reserve(4), <uint32_t>value)
        return 0

    cpdef int write_int64(self, int64_t value) except -1:
        store_u64(self.reserve(8), <uint64_t>value)
        return 0

    cpdef int write_uint16(self, uint16_t value) except -1:
        store_u16(self.reserve(2), value)
        return 0

    cpdef int write_uint32(self, uint32_t value) except -1:
        store_u32(self.reserve(4), value)
        return 0

    cpdef int write_float64(self, double value) except -1:
        cdef uint64_t bits
        memcpy(&bits, &value, 8)
        store_u64(self.reserve(8), bits)
        return 0

    cpdef int write_bool(self, bint value) except -1:
        self.reserve(1)[0] = value
        return 0

    cpdef int write_uvarint(self, uint32_t value) except -1:
        cdef uint8_t *p = self.reserve(5)
        self.size -= 5 - (put_uvarint(p, value) - p)
        return 0

    cpdef int write_varint(self, int32_t value) except -1:
        cdef uint8_t *p = self.reserve(5)
        self.size -= 5 - (put_varint(p, value) - p)
        return 0

    cpdef int write_uvarlong(self, uint64_t value) except -1:
        cdef uint8_t *p = self.reserve(10)
        self.size -= 10 - (put_uvarlong(p, value) - p)
        return 0

    cpdef int write_varlong(self, int64_t value) except -1:
        cdef uint8_t *p = self.reserve(10)
        self.size -= 10 - (put_varlong(p, value) - p)
        return 0

    cpdef int write_uuid(self, bytes value) except -1:
        if value is None or PyBytes_GET_SIZE(value) != 16:
            raise InvalidRequestError(f"a uuid is 16 bytes, not {value!r}")
        return self.put_raw(<const uint8_t *>PyBytes_AS_STRING(value), 16)

    cdef int put_raw(self, const uint8_t *source, Py_ssize_t size) except -1:
        memcpy(self.reserve(size), source, size)
        return 0

    cdef int put_count(self, int64_t count, bint compact) except -1:
        if unlikely(count < -1 or count > INT32_MAX - 1):
            raise InvalidRequestError(f"a length or count of {count} cannot be written")
        if compact:
            return self.write_uvarint(<uint32_t>(count + 1))
        return self.write_int32(<int32_t>count)

    cdef int put_string(self, str value, bint compact) except -1:
        cdef Py_ssize_t size = -1
        cdef const char *text = NULL
        if value is not None:
            try:
                text = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError as error:
                raise InvalidRequestError(
                    f"a string cannot be encoded as UTF-8: {error.reason}"
                ) from error
            if size > INT16_MAX:
                raise InvalidRequestError(f"a string of {size} bytes is longer than 32767")
        if compact:
            self.write_uvarint(<uint32_t>(size + 1))
        else:
            self.write_int16(<int16_t>size)
        return self.put_raw(<const uint8_t *>text, size) if size > 0 else 0

    cdef int put_bytes(self, object value, bint compact) except -1:
        cdef Py_buffer view
        if value is None:
            return self.put_count(-1, compact)
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            self.put_count(view.len, compact)
            return self.put_raw(<const uint8_t *>view.buf, view.len) if view.len > 0 else 0
        finally:
            PyBuffer_Release(&view)

    def write_string(self, str value not None):
        self.put_string(value, False)

    def write_nullable_string(self, str value):
        self.put_string(value, False)

    def write_compact_string(self, str value not None):
        self.put_string(value, True)

    def write_compact_nullable_string(self, str value):
        self.put_string(value, True)

    def write_bytes(self, value not None):
        self.put_bytes(value, False)

    def write_nullable_bytes(self, value):
        self.put_bytes(value, False)

    def write_compact_bytes(self, value not None):
        self.put_bytes(value, True)

    def write_compact_nullable_bytes(self, value):
        self.put_bytes(value, True)

    def write_array_count(self, int64_t count):
        self.put_count(count, False)

    def write_compact_array_count(self, int64_t count):
        self.put_count(count, True)

    def write_raw(self, value not None):
        cdef Py_buffer view
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            if view.len > 0:
                self.put_raw(<const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cpdef int write_tagged(self, dict fields) except -1:
        cdef bytes payload
        if fields is None or len(fields) == 0:
            return self.write_uvarint(0)
        self.write_uvarint(<uint32_t>len(fields))
        for tag in sorted(fields):
            payload = fields[tag]
            self.write_uvarint(tag)
            self.write_uvarint(<uint32_t>PyBytes_GET_SIZE(payload))
            self.put_raw(<const uint8_t *>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        return 0


def uuid_to_text(bytes value not None):
    if PyBytes_GET_SIZE(value) != 16:
        raise InvalidRequestError(f"a uuid is 16 bytes, not {PyBytes_GET_SIZE(value)}")
    return urlsafe_b64encode(value)[:22].decode("ascii")


def uuid_from_text(str text not None):
    if len(text) != 22:
        raise InvalidRequestError(f"a uuid has 22 characters, not {len(text)}: {text!r}")
    try:
        value = urlsafe_b64decode(text + "==")
    except ValueError as error:
        raise InvalidRequestError(f"not the text of a uuid: {text!r}") from error
    if len(value) != 16 or uuid_to_text(value) != text:
        raise InvalidRequestError(f"not the text of a uuid: {text!r}")
    return value
