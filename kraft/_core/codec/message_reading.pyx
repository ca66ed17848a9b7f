"""Decode typed objects from bytes by a schema's plan.

Reads structs, their tagged sections, fields and values. ``metadata_codec`` describes the layouts;
it opens a `Cursor` on a caller's buffer, reads with `decode_struct`, and checks with
`check_all_read` that no byte is left over.

Invariants: a count or length is compared with the bytes left before memory is allocated; every
error is a CorruptRecordError with the position in the caller's buffer; unknown tagged fields are
kept on the object, in their order. Records alone are not copied: they are views of the buffer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kraft._core.codec.message_schema cimport (
    BOOL, BYTES, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UINT16, UUID, Field,
    StructBase, StructSchema, default_of, least_size_of, may_be_null_struct, name_of, slot_of,
)
from kraft._core.bytes.wire cimport get_uvarint, load_u16, load_u32, load_u64

from kraft._core.codec.message_schema import Uuid
from kraft.errors import BudgetExceededError, CorruptRecordError

cdef extern from *:
    """
    /* What bytes.__new__ does for a subclass, without the argument parsing. */
    static inline PyObject *kraft_bytes16(PyObject *type, const void *source) {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 16);
        if (made == NULL) return NULL;
        _Pragma("GCC diagnostic push")
        _Pragma("GCC diagnostic ignored \\"-Wdeprecated-declarations\\"")
        ((PyBytesObject *)made)->ob_shash = -1;
        _Pragma("GCC diagnostic pop")
        memcpy(PyBytes_AS_STRING(made), source, 16);
        return made;
    }
    static inline PyObject *kraft_new(PyObject *type, PyObject *no_arguments) {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, no_arguments, NULL);
    }
    """
    object bytes16 "kraft_bytes16"(object type, const void *source)
    object new_object "kraft_new"(object type, object no_arguments)

cdef object UUID_TYPE = Uuid
cdef tuple NO_ARGUMENTS = ()
cdef int MAX_STRING_SIZE = 0x7fff


cdef int open_cursor(
    object buffer, Py_ssize_t position, object end, Py_buffer *view, Cursor *c
) except -1:
    cdef Py_ssize_t stop
    PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    try:
        stop = view.len if end is None else end
        if not 0 <= position <= stop <= view.len:
            raise ValueError(f"bytes {position} to {stop} of a buffer of {view.len}")
    except BaseException:
        PyBuffer_Release(view)
        raise
    c.start = <const uint8_t *>view.buf + position
    c.at = c.start
    c.end = <const uint8_t *>view.buf + stop
    c.position = position
    c.source = <PyObject *>buffer
    c.is_classic = False
    c.is_lenient = False
    return 0


cdef object corrupt(Cursor *c, const uint8_t *at, str reason, kind=CorruptRecordError):
    return kind(reason, position=c.position + (at - c.start))


cdef int check_all_read(StructSchema schema, Cursor *c) except -1:
    if c.at != c.end:
        raise corrupt(c, c.at, f"{c.end - c.at} bytes are left over after a {schema.name}")
    return 0


cdef inline void fill(object owner, Field *f, object value):
    """Set a new object's slot, which is still NULL."""
    Py_INCREF(value)
    slot_of(owner, f)[0] = <PyObject *>value


cdef inline const uint8_t *get_size(
    const uint8_t *p, Cursor *c, bint is_string, uint32_t *raw
) noexcept:
    """Read a length or count plus 1, 0 for null; a get_* of ``wire``."""
    if c.is_classic:
        return get_classic_size(p, c.end, is_string, raw)
    return get_uvarint(p, c.end, raw)


cdef const uint8_t *get_classic_size(
    const uint8_t *p, const uint8_t *end, bint is_string, uint32_t *raw
) noexcept:
    """Read an int16 (of a string) or int32, -1 for null, as ``get_size`` returns it."""
    cdef int width = 2 if is_string else 4
    cdef int64_t size
    if end - p < width:
        return NULL
    size = <int16_t>load_u16(p) if is_string else <int32_t>load_u32(p)
    if size < -1:
        return NULL
    raw[0] = <uint32_t>(size + 1)
    return p + width


cdef object decode_struct(StructSchema schema, int version, Cursor *c):
    cdef object made = new_object(schema.type, NO_ARGUMENTS)
    cdef Py_ssize_t i
    cdef Field *f
    for i in range(schema.regular_count):
        f = &schema.fields[schema.regular[i]]
        if f.since <= version <= f.until:
            fill(made, f, decode_field(schema, f, version, c))
        else:
            fill(made, f, default_of(f))
    if c.is_classic:
        pass
    elif c.at < c.end and c.at[0] == 0:
        c.at += 1
    else:
        decode_tags(schema, made, version, c)
    for i in range(schema.tagged_count):
        f = &schema.fields[schema.tagged[i]]
        if slot_of(made, f)[0] == NULL:
            fill(made, f, default_of(f))
    return made


cdef int decode_tags(StructSchema schema, object made, int version, Cursor *c) except -1:
    cdef uint32_t count = 0, tag = 0, size = 0
    cdef int64_t previous = -1
    cdef Py_ssize_t k = 0
    cdef const uint8_t *begin = c.at
    cdef const uint8_t *end
    cdef Field *f
    cdef const uint8_t *p = get_uvarint(begin, c.end, &count)
    if p == NULL:
        raise corrupt(c, begin, f"the tagged section of {schema.name} is malformed or ends early")
    if count > (c.end - p) // 2:
        raise corrupt(
            c, begin, f"{schema.name} claims {count} tagged fields in {c.end - p} bytes",
            BudgetExceededError,
        )
    for _ in range(count):
        begin = p
        p = get_uvarint(get_uvarint(begin, c.end, &tag), c.end, &size)
        if p == NULL:
            raise corrupt(c, begin, f"a tagged field of {schema.name} is malformed or ends early")
        if <int64_t>tag <= previous:
            raise corrupt(c, begin, f"tag {tag} of {schema.name} follows tag {previous}")
        if tag > 0x7fffffff:
            # Kafka reads tags as int32, and its writer rejects negative ones.
            raise corrupt(c, begin, f"tag {tag} of {schema.name} is over 2^31 - 1")
        if size > c.end - p:
            raise corrupt(
                c, begin, f"tag {tag} of {schema.name} claims {size} of {c.end - p} bytes",
                BudgetExceededError,
            )
        previous = tag
        while k < schema.tagged_count and schema.fields[schema.tagged[k]].tag < <int64_t>tag:
            k += 1
        if k == schema.tagged_count or schema.fields[schema.tagged[k]].tag != <int64_t>tag:
            if (<StructBase>made).unknown_tagged_fields is None:
                (<StructBase>made).unknown_tagged_fields = {}
            (<StructBase>made).unknown_tagged_fields[tag] = PyBytes_FromStringAndSize(
                <const char *>p, size
            )
            p += size
            continue
        f = &schema.fields[schema.tagged[k]]
        if not f.since <= version <= f.until:
            raise corrupt(c, begin, f"tag {tag} is not part of {schema.name} in version {version}")
        # Read the payload as if the buffer ended with it.
        end = c.end
        c.at = p
        c.end = p + size
        fill(made, f, decode_field(schema, f, version, c))
        if c.at != c.end:
            raise corrupt(c, c.at, f"{name_of(schema, f)} is shorter than its size, {size}")
        p = c.end
        c.end = end
    c.at = p
    return 0


cdef object decode_field(StructSchema schema, Field *f, int version, Cursor *c):
    cdef uint32_t raw = 0
    cdef Py_ssize_t count, i, step
    cdef const uint8_t *begin = c.at
    cdef list items
    cdef object item
    if not f.is_array:
        return decode_one(schema, f, version, c)
    c.at = get_size(begin, c, False, &raw)
    if c.at == NULL:
        raise corrupt(c, begin, f"{name_of(schema, f)} ends early or has a negative count")
    if raw == 0:
        if version >= f.nullable_since:
            return None
        raise corrupt(c, begin, f"{name_of(schema, f)} is null")
    count = <Py_ssize_t>raw - 1
    step = least_size_of(f, version, c.is_classic)
    if count > (c.end - c.at) // step:
        raise corrupt(
            c, begin, f"{name_of(schema, f)} claims {count} elements in {c.end - c.at} bytes",
            BudgetExceededError,
        )
    items = PyList_New(count)
    if f.kind <= UUID:
        for i in range(count):
            item = fixed_of(f.kind, c.at)
            Py_INCREF(item)
            PyList_SET_ITEM(items, i, item)
            c.at += step
    else:
        for i in range(count):
            item = decode_one(schema, f, version, c)
            Py_INCREF(item)
            PyList_SET_ITEM(items, i, item)
    return items


cdef inline object fixed_of(int kind, const uint8_t *p):
    """Return a value of a fixed-size kind; the caller has checked the bounds."""
    cdef uint64_t bits
    cdef double real
    if kind == INT32:
        return <int32_t>load_u32(p)
    if kind == UUID:
        return bytes16(UUID_TYPE, p)
    if kind == INT64:
        return <int64_t>load_u64(p)
    if kind == INT8:
        return <int8_t>p[0]
    if kind == INT16:
        return <int16_t>load_u16(p)
    if kind == UINT16:
        return load_u16(p)
    if kind == BOOL:
        return p[0] != 0
    bits = load_u64(p)
    memcpy(&real, &bits, 8)
    return real


cdef object view_of(Cursor *c, const uint8_t *p, Py_ssize_t size):
    """Return a view of the caller's buffer, which it keeps alive."""
    cdef Py_ssize_t begin = c.position + (p - c.start)
    return memoryview(<object>c.source).cast("B")[begin:begin + size]


cdef object decode_one(StructSchema schema, Field *f, int version, Cursor *c):
    cdef uint32_t raw = 0
    cdef Py_ssize_t size
    cdef const uint8_t *begin = c.at
    cdef const uint8_t *p
    if f.kind <= UUID:
        size = f.least_size
        if c.end - begin < size:
            raise corrupt(c, begin, f"{name_of(schema, f)} ends early")
        c.at = begin + size
        return fixed_of(f.kind, begin)
    if f.kind == STRUCT:
        if may_be_null_struct(f, version):
            if begin == c.end:
                raise corrupt(c, begin, f"{name_of(schema, f)} ends early")
            c.at = begin + 1
            if <int8_t>begin[0] < 0:
                return None
        return decode_struct(<StructSchema>f.nested, version, c)
    p = get_size(begin, c, f.kind == STRING, &raw)
    if p == NULL:
        raise corrupt(c, begin, f"{name_of(schema, f)} ends early or has a negative size")
    if raw == 0:
        # An element of an array is never null; `nullable_since` refers to the array.
        if version >= f.nullable_since and not f.is_array:
            c.at = p
            return None
        raise corrupt(c, begin, f"{name_of(schema, f)} is null")
    size = <Py_ssize_t>raw - 1
    if size > c.end - p:
        raise corrupt(
            c, begin, f"{name_of(schema, f)} claims {size} of {c.end - p} bytes",
            BudgetExceededError,
        )
    c.at = p + size
    if f.kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *>p, size)
    if f.kind == RECORDS:
        return view_of(c, p, size)
    if size > MAX_STRING_SIZE:
        raise corrupt(c, begin, f"{name_of(schema, f)} has {size} bytes, over {MAX_STRING_SIZE}")
    try:
        return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)
    except UnicodeDecodeError as error:
        if c.is_lenient:
            return PyUnicode_DecodeUTF8(<const char *>p, size, "replace")
        begin = p + <Py_ssize_t>error.start
        raise corrupt(c, begin, f"{name_of(schema, f)} is not UTF-8") from None
