"""Encode typed objects by a schema's plan.

Writes structs, their tagged sections, fields and values into a `Buffer`. ``metadata_codec``
describes the layouts; it opens a buffer, writes with `encode_struct`, and closes it.

Invariants: a tagged field is written only if it differs from its default; unknown tagged fields are
written between the known ones, by ascending tag. A field that a version does not have must be at
its default, and a value of the wrong type or range raises InvalidRecordError; no wrong byte is
written.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AsDouble
from cpython.long cimport PyLong_AsLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kraft._core.codec.message_schema cimport (
    BOOL, BYTES, INT8, INT32, INT64, RECORDS, STRING, STRUCT, UUID, Field, FieldSpec, StructBase,
    StructSchema, may_be_null_struct, name_of, value_of,
)
from kraft._core.bytes.wire cimport put_uvarint, size_of_uvarint, store_u16, store_u32, store_u64

from kraft._core.bytes.file_slice import FileSlice
from kraft.errors import InvalidRecordError, UnsupportedVersionError

cdef extern from *:
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

# By Kind: the range of the integer kinds.
cdef int64_t[6] LOWEST = [0, -0x80, -0x8000, 0, -0x80000000, INT64_MIN]
cdef int64_t[6] HIGHEST = [1, 0x7f, 0x7fff, 0xffff, 0x7fffffff, 0x7fffffffffffffff]
cdef int MAX_STRING_SIZE = 0x7fff


cdef void open_buffer(Buffer *b) noexcept:
    b.data = b.first
    b.size = 0
    b.capacity = sizeof(b.first)
    b.is_classic = False
    b.segments = NULL
    b.segments_size = 0


cdef void close_buffer(Buffer *b) noexcept:
    if b.data != b.first:
        PyMem_Free(b.data)


cdef int reserve(Buffer *b, Py_ssize_t more) except -1:
    """Make space for `more` bytes after `b.size`."""
    cdef Py_ssize_t capacity = b.capacity
    cdef uint8_t *data
    if b.size + more <= capacity:
        return 0
    while capacity < b.size + more:
        capacity *= 2
    if b.data == b.first:
        data = <uint8_t *>PyMem_Malloc(capacity)
        if data != NULL:
            memcpy(data, b.first, b.size)
    else:
        data = <uint8_t *>PyMem_Realloc(b.data, capacity)
    if data == NULL:
        raise MemoryError
    b.data = data
    b.capacity = capacity
    return 0


cdef int write_uvarint(Buffer *b, uint32_t value) except -1:
    reserve(b, 5)
    b.size = put_uvarint(b.data + b.size, value) - b.data
    return 0


cdef int write_int8(Buffer *b, int value) except -1:
    reserve(b, 1)
    b.data[b.size] = <uint8_t>value
    b.size += 1
    return 0


cdef inline void put_size(Buffer *b, uint32_t raw, bint is_string) noexcept:
    """Write a length or count plus 1, 0 for null; the caller has reserved 5 bytes."""
    if b.is_classic:
        put_classic_size(b, raw, is_string)
    else:
        b.size = put_uvarint(b.data + b.size, raw) - b.data


cdef void put_classic_size(Buffer *b, uint32_t raw, bint is_string) noexcept:
    """Write an int16 (of a string) or int32, -1 for null."""
    if is_string:
        store_u16(b.data + b.size, <uint16_t>(raw - 1))
        b.size += 2
    else:
        store_u32(b.data + b.size, raw - 1)
        b.size += 4


cdef int write_size(Buffer *b, uint32_t raw, bint is_string) except -1:
    reserve(b, 5)
    put_size(b, raw, is_string)
    return 0


cdef int write_bytes(Buffer *b, const void *source, Py_ssize_t size, bint is_string) except -1:
    if size >= 0x7fffffff:
        raise InvalidRecordError(f"{size} bytes do not fit in a field")
    reserve(b, 5 + size)
    put_size(b, <uint32_t>size + 1, is_string)
    memcpy(b.data + b.size, source, size)
    b.size += size
    return 0


cdef int end_segment(Buffer *b) except -1:
    """Move the bytes of `data` to the list of segments."""
    (<list>b.segments).append(PyBytes_FromStringAndSize(<const char *>b.data, b.size))
    b.segments_size += b.size
    b.size = 0
    return 0


cdef int write_records(StructSchema schema, Field *f, object value, Buffer *b) except -1:
    """Write the size, and add the value as a segment: bytes, or a slice of a file."""
    cdef Py_ssize_t size
    try:
        size = value.size if isinstance(value, FileSlice) else memoryview(value).nbytes
    except TypeError:
        raise misfit(schema, f, value) from None
    if not 0 <= size < 0x7fffffff:
        raise InvalidRecordError(f"{name_of(schema, f)} cannot have {size} bytes")
    write_size(b, <uint32_t>size + 1, False)
    if size:
        end_segment(b)
        (<list>b.segments).append(value)
        b.segments_size += size
    return 0


cdef object misfit(StructSchema schema, Field *f, object value):
    kind = "[]" if f.is_array else ""
    kind += (<FieldSpec>schema.specs[schema.names[f - schema.fields]]).kind
    return InvalidRecordError(f"{name_of(schema, f)} cannot be {value!r}: its type is {kind}")


cdef bint is_numpy_bool(type of) except -1:
    """Return whether this is numpy's boolean; this module does not import numpy."""
    return of.__module__ == "numpy" and of.__name__ in ("bool", "bool_")


cdef int64_t integer_of(StructSchema schema, Field *f, object value) except? -1:
    cdef int64_t integer
    if f.kind == BOOL:
        if value is True or value is False:
            return value is True
        if value != 0 and value != 1:
            raise misfit(schema, f, value)
        return 1 if value else 0
    if not isinstance(value, int) and is_numpy_bool(type(value)):
        # numpy deprecates its booleans as integers.
        raise misfit(schema, f, value)
    try:
        integer = PyLong_AsLongLong(value)
    except (TypeError, OverflowError):
        raise misfit(schema, f, value) from None
    if not LOWEST[f.kind] <= integer <= HIGHEST[f.kind]:
        raise misfit(schema, f, value)
    return integer


cdef bint is_default(StructSchema schema, Field *f, object value) except -1:
    if <PyObject *>value == f.default_value:
        return True
    if f.is_array:
        # An array's default is null or empty.
        if <object>f.default_value is None or value is None:
            return False
        try:
            return len(value) == 0
        except TypeError:
            raise misfit(schema, f, value) from None
    if value is None or <object>f.default_value is None:
        return False
    if f.kind <= INT64:
        return integer_of(schema, f, value) == f.default_integer
    try:
        return value == <object>f.default_value
    except (TypeError, ValueError):
        # A numpy array, which compares element by element.
        raise misfit(schema, f, value) from None


cdef int encode_struct(StructSchema schema, int version, object owner, Buffer *b) except -1:
    cdef Py_ssize_t i
    cdef uint32_t count = 0
    cdef Field *f
    cdef object unknown
    if type(owner) is not schema.type:
        raise InvalidRecordError(f"not a {schema.name}: {owner!r}")
    for i in range(schema.count):
        f = &schema.fields[i]
        value = value_of(schema, owner, f)
        if not f.since <= version <= f.until:
            # A field that the version does not have must not be lost silently.
            if not f.ignorable and not is_default(schema, f, value):
                raise UnsupportedVersionError(
                    f"{name_of(schema, f)} is not part of version {version}, and is {value!r}"
                )
        elif f.tag < 0:
            encode_field(schema, f, version, value, b)
        elif not is_default(schema, f, value):
            count += 1
    unknown = (<StructBase>owner).unknown_tagged_fields
    if b.is_classic:
        if count or unknown:
            raise UnsupportedVersionError(
                f"version {version} of {schema.name} has no tagged fields"
            )
        return 0
    if unknown:
        return encode_tags(schema, version, owner, dict(unknown), count, b)
    write_uvarint(b, count)
    for i in range(schema.tagged_count):
        if count == 0:
            break
        f = &schema.fields[schema.tagged[i]]
        if f.since <= version <= f.until:
            value = value_of(schema, owner, f)
            if not is_default(schema, f, value):
                encode_tag(schema, f, version, value, b)
                count -= 1
    return 0


cdef int encode_tag(
    StructSchema schema, Field *f, int version, object value, Buffer *b
) except -1:
    cdef Py_ssize_t size_at, size, wider
    write_uvarint(b, f.tag)
    # One byte is reserved for the size; a payload that needs more bytes for it is moved.
    reserve(b, 1)
    size_at = b.size
    b.size += 1
    encode_field(schema, f, version, value, b)
    size = b.size - size_at - 1
    wider = size_of_uvarint(<uint32_t>size) - 1
    if wider:
        reserve(b, wider)
        memmove(b.data + size_at + 1 + wider, b.data + size_at + 1, size)
        b.size += wider
    put_uvarint(b.data + size_at, <uint32_t>size)
    return 0


cdef int encode_tags(
    StructSchema schema, int version, object owner, dict unknown, uint32_t count, Buffer *b
) except -1:
    """Write a tagged section with unknown tags between the known ones."""
    cdef Py_ssize_t i, k = 0
    cdef Field *f
    cdef dict known = {schema.fields[schema.tagged[i]].tag: i for i in range(schema.tagged_count)}
    for tag, payload in unknown.items():
        if tag in known or not isinstance(tag, int) or not 0 <= tag <= 0x7fffffff:
            raise InvalidRecordError(f"{tag!r} is not an unknown tag of {schema.name}")
        if not isinstance(payload, bytes):
            raise InvalidRecordError(f"the payload of tag {tag} of {schema.name} is not bytes")
    write_uvarint(b, count + <uint32_t>len(unknown))
    for tag in sorted([*known, *unknown]):
        if tag in unknown:
            payload = unknown[tag]
            write_uvarint(b, tag)
            write_uvarint(b, <uint32_t>len(payload))
            reserve(b, len(payload))
            memcpy(b.data + b.size, <const char *>PyBytes_AS_STRING(payload), len(payload))
            b.size += len(payload)
            continue
        k = known[tag]
        f = &schema.fields[schema.tagged[k]]
        value = value_of(schema, owner, f)
        if f.since <= version <= f.until and not is_default(schema, f, value):
            encode_tag(schema, f, version, value, b)
    return 0


cdef int encode_field(
    StructSchema schema, Field *f, int version, object value, Buffer *b
) except -1:
    cdef tuple items
    if value is None:
        if version < f.nullable_since:
            raise misfit(schema, f, value)
        if may_be_null_struct(f, version):
            return write_int8(b, -1)
        return write_size(b, 0, f.kind == STRING and not f.is_array)
    if not f.is_array:
        if may_be_null_struct(f, version):
            write_int8(b, 1)
        return encode_one(schema, f, version, value, b)
    if isinstance(value, (str, bytes)):
        raise misfit(schema, f, value)
    try:
        # A copy, so that nothing can change the elements while they are written.
        items = tuple(value)
    except TypeError:
        raise misfit(schema, f, value) from None
    if len(items) >= 0x7fffffff:
        raise InvalidRecordError(f"{name_of(schema, f)} has too many elements")
    write_size(b, <uint32_t>len(items) + 1, False)
    for item in items:
        if item is None:
            raise misfit(schema, f, value)
        encode_one(schema, f, version, item, b)
    return 0


cdef int encode_one(
    StructSchema schema, Field *f, int version, object value, Buffer *b
) except -1:
    cdef int64_t integer
    cdef uint8_t *p
    cdef Py_ssize_t size = 0
    cdef const char *text
    cdef uint64_t bits
    cdef double real
    cdef bytes data
    if f.kind <= INT64:
        integer = integer_of(schema, f, value)
        reserve(b, 8)
        p = b.data + b.size
        if f.kind == INT32:
            store_u32(p, <uint32_t>integer)
        elif f.kind == INT64:
            store_u64(p, <uint64_t>integer)
        elif f.kind <= INT8:
            p[0] = <uint8_t>integer
        else:
            store_u16(p, <uint16_t>integer)
        b.size += f.least_size
    elif f.kind == UUID:
        if not isinstance(value, bytes) or len(<bytes>value) != 16:
            raise misfit(schema, f, value)
        reserve(b, 16)
        memcpy(b.data + b.size, PyBytes_AS_STRING(value), 16)
        b.size += 16
    elif f.kind == STRING:
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except (TypeError, UnicodeEncodeError):
            raise misfit(schema, f, value) from None
        if size > MAX_STRING_SIZE:
            raise InvalidRecordError(
                f"{name_of(schema, f)} has {size} bytes, over {MAX_STRING_SIZE}"
            )
        write_bytes(b, text, size, True)
    elif f.kind == STRUCT:
        encode_struct(<StructSchema>f.nested, version, value, b)
    elif f.kind == RECORDS and b.segments != NULL:
        write_records(schema, f, value, b)
    elif f.kind == BYTES or f.kind == RECORDS:
        try:
            data = value if type(value) is bytes else bytes(memoryview(value))
        except TypeError:
            raise misfit(schema, f, value) from None
        write_bytes(b, PyBytes_AS_STRING(data), len(data), False)
    else:
        try:
            real = PyFloat_AsDouble(value)
        except TypeError:
            raise misfit(schema, f, value) from None
        memcpy(&bits, &real, 8)
        reserve(b, 8)
        store_u64(b.data + b.size, bits)
        b.size += 8
    return 0
