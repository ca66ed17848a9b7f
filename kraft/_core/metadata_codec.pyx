"""Message schemas interpreted in C: bytes <-> typed objects, for metadata and control records.

Owns `Uuid`, the base classes `Struct` and `Record`, `field` (one line of a schema),
`StructCodec` (the schema of one struct in all its versions) and `RecordCodec` (the frame around a
record value). The schemas themselves are the classes of `kraft.records`: a class body is a list of
`field(...)`, from which the metaclass makes slots and a codec. The codec reads and writes the
slots by their place in the object, without a look-up by name.

    record value   uvarint frame version = 1 | uvarint api key | uvarint version | struct
    struct         fields of this version in schema order | tagged section
    tagged section uvarint count, then by ascending tag: uvarint tag | uvarint size | payload
    string, bytes  uvarint length + 1 (0 = null) | bytes
    array          uvarint count + 1 (0 = null) | elements
    uuid           16 bytes; integers and float64 are big-endian; bool is one byte

Invariants: a count or length is checked against the bytes left before anything is allocated; a
tagged field is written only where it differs from its default; unknown tagged fields stay on the
object and are written back in their order. Rules: KIP-482, and what Kafka's generated classes do
(org.apache.kafka.message).
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AsDouble
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLong
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT64_MIN,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
from libc.string cimport memcpy, memmove

from kraft._core.wire cimport (
    get_uvarint,
    load_u16,
    load_u32,
    load_u64,
    put_uvarint,
    size_of_uvarint,
    store_u16,
    store_u32,
    store_u64,
)

from kraft.errors import (
    BudgetExceededError,
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedVersionError,
)

cdef extern from *:
    """
    #include <structmember.h>
    static inline Py_ssize_t kraft_slot_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
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
    Py_ssize_t slot_offset "kraft_slot_offset"(object descriptor)
    object bytes16 "kraft_bytes16"(object type, const void *source)
    object new_object "kraft_new"(object type, object no_arguments)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum Kind:
    BOOL
    INT8
    INT16
    UINT16
    INT32
    INT64
    FLOAT64
    UUID
    STRING
    BYTES
    STRUCT

cdef dict KINDS = {
    "bool": BOOL,
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "int64": INT64,
    "float64": FLOAT64,
    "uuid": UUID,
    "string": STRING,
    "bytes": BYTES,
    "struct": STRUCT,
}

# By Kind: the bytes that a value takes at least on the wire; the range of the integer kinds.
cdef int[11] LEAST_SIZE = [1, 1, 2, 2, 4, 8, 8, 16, 1, 1, 1]
cdef int64_t[6] LOWEST = [0, -0x80, -0x8000, 0, -0x80000000, INT64_MIN]
cdef int64_t[6] HIGHEST = [1, 0x7f, 0x7fff, 0xffff, 0x7fffffff, 0x7fffffffffffffff]

cdef object MISSING = object()
cdef tuple NO_ARGUMENTS = ()
cdef int MAX_VERSION = 31
cdef int MAX_STRING_SIZE = 0x7fff
cdef uint32_t FRAME_VERSION = 1


class Uuid(bytes):
    __slots__ = ()

    def __new__(cls, value=b"\0" * 16):
        made = bytes.__new__(cls, value)
        if len(made) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(made)}")
        return made

    @classmethod
    def parse(cls, text):
        try:
            value = a2b_base64(text.replace("-", "+").replace("_", "/") + "==", strict_mode=True)
        except (Base64Error, ValueError) as error:
            raise ValueError(f"not a uuid in Kafka's base64 text: {text!r}") from error
        if len(value) != 16 or len(text) != 22:
            raise ValueError(f"not a uuid in Kafka's base64 text: {text!r}")
        return cls(value)

    def __str__(self):
        text = b2a_base64(self, newline=False)[:22].decode("ascii")
        return text.replace("+", "-").replace("/", "_")

    def __repr__(self):
        return f"Uuid({str(self)!r})"


ZERO_UUID = Uuid()
cdef object UUID_TYPE = Uuid


cdef class FieldSpec:
    """One line of a schema, as `field` was told it."""

    cdef readonly str kind
    cdef readonly bint is_array
    cdef readonly object default
    cdef readonly int since
    cdef readonly int until
    cdef readonly int tag
    cdef readonly bint nullable
    cdef readonly object of

    def __repr__(self):
        kind = f"[]{self.kind}" if self.is_array else self.kind
        return f"field({kind!r}, since={self.since}, tag={self.tag}, nullable={self.nullable})"


cdef dict IMPLICIT_DEFAULT = {
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
}


def field(
    str kind, default=MISSING, *, int since=0, int until=MAX_VERSION, int tag=-1,
    bint nullable=False, of=None,
):
    cdef FieldSpec spec = FieldSpec.__new__(FieldSpec)
    spec.is_array = kind.startswith("[]")
    spec.kind = kind[2:] if spec.is_array else kind
    if spec.kind not in KINDS:
        raise ValueError(f"no such kind of field: {kind!r}")
    if (spec.kind == "struct") != (of is not None):
        raise ValueError("a struct field, and no other, names its class in `of`")
    if nullable and (spec.kind == "struct" and not spec.is_array):
        raise ValueError("a struct that may be null is not part of any metadata schema")
    if default is MISSING:
        if spec.is_array:
            default = []
        elif spec.kind == "struct":
            default = of()
        else:
            default = IMPLICIT_DEFAULT.get(spec.kind, 0)
    spec.default = default
    spec.since = since
    spec.until = until
    spec.tag = tag
    spec.nullable = nullable
    spec.of = of
    return spec


class StructType(type):
    """Makes a class body of `field(...)` lines into slots and a codec."""

    def __new__(mcls, str name, tuple bases, dict namespace, **options):
        cdef dict specs = {
            key: value for key, value in namespace.items() if isinstance(value, FieldSpec)
        }
        for key in specs:
            del namespace[key]
        namespace["__slots__"] = tuple(specs)
        namespace["__match_args__"] = tuple(specs)
        made = type.__new__(mcls, name, bases, namespace)
        made.schema = StructCodec(made, specs, **options)
        return made

    def __init__(cls, name, bases, namespace, **options):
        type.__init__(cls, name, bases, namespace)


cdef class StructBase:
    """The compiled half of `Struct`; a field is a slot that the codec knows by its offset."""

    cdef public object unknown_tagged_fields

    def __init__(self, *args, **kwargs):
        cdef StructCodec codec = type(self).schema
        cdef Py_ssize_t i, given = len(args)
        cdef PyObject **slot
        cdef object value
        if given > codec.count:
            raise TypeError(f"{codec.name} has {codec.count} fields, {given} were given")
        for i in range(given):
            codec.set_slot(self, i, args[i])
        for key, value in kwargs.items():
            position = codec.index.get(key)
            if position is None:
                # `version` and `unknown_tagged_fields` are plain attributes.
                if key not in ("unknown_tagged_fields", "version") or not hasattr(self, key):
                    raise TypeError(f"{codec.name} has no field {key!r}")
                setattr(self, key, value)
                continue
            if <Py_ssize_t>position < given:
                raise TypeError(f"{codec.name}: {key!r} was given twice")
            codec.set_slot(self, position, value)
        for i in range(given, codec.count):
            slot = <PyObject **>(<char *><PyObject *>self + codec.fields[i].offset)
            if slot[0] == NULL:
                codec.set_slot(self, i, default_of(&codec.fields[i]))

    def __eq__(self, other):
        cdef StructCodec codec
        cdef Py_ssize_t i
        if type(self) is not type(other):
            return NotImplemented
        codec = type(self).schema
        for i in range(codec.count):
            if codec.get_slot(self, i) != codec.get_slot(other, i):
                return False
        return (self.unknown_tagged_fields or None) == (
            (<StructBase>other).unknown_tagged_fields or None
        )

    def __repr__(self):
        cdef StructCodec codec = type(self).schema
        cdef Py_ssize_t i
        cdef list parts = []
        for i in range(codec.count):
            value = codec.get_slot(self, i)
            if codec.fields[i].tag < 0 or value != <object>codec.fields[i].default_value:
                parts.append(f"{codec.names[i]}={value!r}")
        if self.unknown_tagged_fields:
            parts.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{codec.name}({', '.join(parts)})"

    def __reduce__(self):
        cdef StructCodec codec = type(self).schema
        values = tuple([codec.get_slot(self, i) for i in range(codec.count)])
        extra = {"unknown_tagged_fields": self.unknown_tagged_fields}
        if isinstance(self, RecordBase):
            extra["version"] = (<RecordBase>self).version
        return rebuild, (type(self), values, extra)

    def replace(self, **changes):
        _, (cls, values, extra) = self.__reduce__()
        return cls(**{**dict(zip(cls.__match_args__, values)), **extra, **changes})

    def to_dict(self):
        cdef StructCodec codec = type(self).schema
        cdef dict made = {}
        for i in range(codec.count):
            value = codec.get_slot(self, i)
            if isinstance(value, StructBase):
                value = value.to_dict()
            elif isinstance(value, list):
                value = [e.to_dict() if isinstance(e, StructBase) else e for e in value]
            made[codec.names[i]] = value
        return made


cdef class RecordBase(StructBase):
    cdef public int version

    def __cinit__(self):
        self.version = -1


def rebuild(cls, values, extra):
    """What pickle and copy call to make a struct again."""
    return cls(*values, **extra)


cdef struct Field:
    int kind
    bint is_array
    bint nullable
    int since
    int until
    int tag
    Py_ssize_t offset
    # The default of an integer kind, ready to compare.
    int64_t default_integer
    # Borrowed: the codec's list of specs keeps these alive.
    PyObject *default_value
    PyObject *nested


cdef struct Cursor:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end
    # The position of `start` in the caller's buffer, for error messages.
    Py_ssize_t position


cdef struct Buffer:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t capacity
    # `data` points here until the value outgrows it.
    uint8_t[1024] first


cdef object default_of(Field *f):
    """The default as a value of its own: arrays and structs are not shared between objects."""
    if f.is_array and <object>f.default_value is not None:
        return []
    if f.kind == STRUCT and not f.is_array:
        return (<StructCodec>f.nested).type()
    return <object>f.default_value


cdef class StructCodec:
    """The schema of one struct in all its versions."""

    cdef readonly object type
    cdef readonly str name
    cdef readonly int api_key
    cdef readonly int lowest_version
    cdef readonly int highest_version
    cdef readonly dict specs
    cdef tuple names
    cdef dict index
    cdef Field *fields
    cdef Py_ssize_t count
    # Indices into `fields`: the untagged ones in schema order, and the tagged ones by tag.
    cdef int *regular
    cdef Py_ssize_t regular_count
    cdef int *tagged
    cdef Py_ssize_t tagged_count
    cdef int[32] least_size

    def __init__(self, type, dict specs, *, int api_key=-1, versions=(0, MAX_VERSION)):
        cdef FieldSpec spec
        cdef Field *f
        cdef Py_ssize_t i
        cdef int version
        self.type = type
        self.name = type.__name__
        self.api_key = api_key
        self.lowest_version, self.highest_version = versions
        if not 0 <= self.lowest_version <= self.highest_version <= MAX_VERSION:
            raise ValueError(f"versions of {self.name} lie outside 0-{MAX_VERSION}")
        self.specs = specs
        self.names = tuple(specs)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.count = len(specs)
        self.fields = <Field *>PyMem_Calloc(self.count + 1, sizeof(Field))
        self.regular = <int *>PyMem_Calloc(self.count + 1, sizeof(int))
        self.tagged = <int *>PyMem_Calloc(self.count + 1, sizeof(int))
        if self.fields == NULL or self.regular == NULL or self.tagged == NULL:
            raise MemoryError
        for i, (name, spec) in enumerate(specs.items()):
            f = &self.fields[i]
            f.kind = KINDS[spec.kind]
            f.is_array = spec.is_array
            f.nullable = spec.nullable
            f.since = spec.since
            f.until = spec.until
            f.tag = spec.tag
            f.offset = slot_offset(type.__dict__[name])
            if f.offset < 0:
                raise TypeError(f"{self.name}.{name} is not a slot")
            f.default_value = <PyObject *>spec.default
            if f.kind <= INT64 and not f.is_array:
                f.default_integer = spec.default
            if f.kind == STRUCT:
                f.nested = <PyObject *>(<StructCodec?>spec.of.schema)
            if f.tag < 0:
                self.regular[self.regular_count] = i
                self.regular_count += 1
        for i in sorted(range(self.count), key=lambda i: self.fields[i].tag):
            if self.fields[i].tag >= 0:
                self.tagged[self.tagged_count] = i
                self.tagged_count += 1
        for version in range(MAX_VERSION + 1):
            self.least_size[version] = self.least_size_in(version)

    def __dealloc__(self):
        PyMem_Free(self.fields)
        PyMem_Free(self.regular)
        PyMem_Free(self.tagged)

    cdef int least_size_in(self, int version):
        cdef Py_ssize_t i
        cdef Field *f
        cdef int size = 1
        for i in range(self.regular_count):
            f = &self.fields[self.regular[i]]
            if f.since <= version <= f.until:
                if f.kind == STRUCT and not f.is_array:
                    size += (<StructCodec>f.nested).least_size[version]
                else:
                    size += 1 if f.is_array else LEAST_SIZE[f.kind]
        return size

    cdef void set_slot(self, object owner, Py_ssize_t i, object value):
        cdef PyObject **slot = <PyObject **>(<char *><PyObject *>owner + self.fields[i].offset)
        cdef PyObject *old = slot[0]
        Py_INCREF(value)
        slot[0] = <PyObject *>value
        Py_XDECREF(old)

    cdef object get_slot(self, object owner, Py_ssize_t i):
        cdef PyObject **slot = <PyObject **>(<char *><PyObject *>owner + self.fields[i].offset)
        if slot[0] == NULL:
            raise AttributeError(f"{self.name}.{self.names[i]} was deleted")
        return <object>slot[0]

    def check_version(self, int version):
        if not self.lowest_version <= version <= self.highest_version:
            raise UnsupportedVersionError(
                f"{self.name} has versions {self.lowest_version}-{self.highest_version},"
                f" not {version}"
            )

    def decode(self, buffer, int version, Py_ssize_t position=0, end=None):
        cdef Py_buffer view
        cdef Cursor c
        self.check_version(version)
        open_cursor(buffer, position, end, &view, &c)
        try:
            made = decode_struct(self, version, &c)
            check_all_read(self, &c)
            if isinstance(made, RecordBase):
                (<RecordBase>made).version = version
            return made
        finally:
            PyBuffer_Release(&view)

    def encode(self, value, int version):
        cdef Buffer b
        self.check_version(version)
        open_buffer(&b)
        try:
            encode_struct(self, version, value, &b)
            return PyBytes_FromStringAndSize(<char *>b.data, b.size)
        finally:
            close_buffer(&b)


cdef class RecordCodec:
    """The frame around a record value, for a set of record types."""

    cdef list by_key

    def __init__(self, types):
        cdef StructCodec codec
        codecs = [type.schema for type in types]
        self.by_key = [None] * (max([(<StructCodec>codec).api_key for codec in codecs]) + 1)
        for codec in codecs:
            if codec.api_key < 0 or self.by_key[codec.api_key] is not None:
                raise ValueError(f"{codec.name} has no api key of its own")
            self.by_key[codec.api_key] = codec

    def decode(self, buffer, Py_ssize_t position=0, end=None):
        cdef Py_buffer view
        cdef Cursor c
        cdef uint32_t frame_version = 0, api_key = 0, version = 0
        cdef StructCodec codec
        open_cursor(buffer, position, end, &view, &c)
        try:
            c.at = get_uvarint(c.at, c.end, &frame_version)
            if c.at != NULL and frame_version != FRAME_VERSION:
                raise UnsupportedVersionError(
                    f"a record value with frame version {frame_version}, not {FRAME_VERSION}"
                )
            c.at = get_uvarint(get_uvarint(c.at, c.end, &api_key), c.end, &version)
            if c.at == NULL:
                raise corrupt(&c, c.start, "the frame of a record value is malformed or ends early")
            if api_key >= <size_t>len(self.by_key) or self.by_key[api_key] is None:
                raise UnsupportedVersionError(f"no metadata record has api key {api_key}")
            codec = <StructCodec>self.by_key[api_key]
            if not <uint32_t>codec.lowest_version <= version <= <uint32_t>codec.highest_version:
                codec.check_version(<int>min(version, <uint32_t>0x7fff))
            made = decode_struct(codec, <int>version, &c)
            check_all_read(codec, &c)
            (<RecordBase>made).version = <int>version
            return made
        finally:
            PyBuffer_Release(&view)

    def encode(self, record, int version):
        cdef Buffer b
        cdef uint8_t *p
        cdef StructCodec codec
        if not isinstance(record, RecordBase):
            raise InvalidRecordError(f"not a metadata record: {record!r}")
        codec = type(record).schema
        if not 0 <= codec.api_key < len(self.by_key) or self.by_key[codec.api_key] is not codec:
            raise InvalidRecordError(f"not a metadata record: {codec.name}")
        codec.check_version(version)
        open_buffer(&b)
        try:
            p = put_uvarint(b.data, FRAME_VERSION)
            p = put_uvarint(p, codec.api_key)
            p = put_uvarint(p, version)
            b.size = p - b.data
            encode_struct(codec, version, record, &b)
            return PyBytes_FromStringAndSize(<char *>b.data, b.size)
        finally:
            close_buffer(&b)


# ---------------------------------------------------------------- bytes -> objects


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
    return 0


cdef object corrupt(Cursor *c, const uint8_t *at, str reason, kind=CorruptRecordError):
    return kind(reason, position=c.position + (at - c.start))


cdef int check_all_read(StructCodec codec, Cursor *c) except -1:
    if c.at != c.end:
        raise corrupt(c, c.at, f"{c.end - c.at} bytes are left over behind a {codec.name}")
    return 0


cdef str name_of(StructCodec codec, Field *f):
    return f"{codec.name}.{codec.names[f - codec.fields]}"


cdef inline void fill(object owner, Field *f, object value):
    """Give a new object's slot, still NULL, its value."""
    Py_INCREF(value)
    (<PyObject **>(<char *><PyObject *>owner + f.offset))[0] = <PyObject *>value


cdef object decode_struct(StructCodec codec, int version, Cursor *c):
    cdef object made = new_object(codec.type, NO_ARGUMENTS)
    cdef Py_ssize_t i
    cdef Field *f
    for i in range(codec.regular_count):
        f = &codec.fields[codec.regular[i]]
        if f.since <= version <= f.until:
            fill(made, f, decode_field(codec, f, version, c))
        else:
            fill(made, f, default_of(f))
    if c.at < c.end and c.at[0] == 0:
        c.at += 1
    else:
        decode_tags(codec, made, version, c)
    for i in range(codec.tagged_count):
        f = &codec.fields[codec.tagged[i]]
        if (<PyObject **>(<char *><PyObject *>made + f.offset))[0] == NULL:
            fill(made, f, default_of(f))
    return made


cdef int decode_tags(StructCodec codec, object made, int version, Cursor *c) except -1:
    cdef uint32_t count = 0, tag = 0, size = 0
    cdef int64_t previous = -1
    cdef Py_ssize_t k = 0
    cdef const uint8_t *begin = c.at
    cdef const uint8_t *end
    cdef Field *f
    cdef const uint8_t *p = get_uvarint(begin, c.end, &count)
    if p == NULL:
        raise corrupt(c, begin, f"the tagged section of {codec.name} is malformed or ends early")
    if count > (c.end - p) // 2:
        raise corrupt(
            c, begin, f"{codec.name} claims {count} tagged fields in {c.end - p} bytes",
            BudgetExceededError,
        )
    for _ in range(count):
        begin = p
        p = get_uvarint(get_uvarint(begin, c.end, &tag), c.end, &size)
        if p == NULL:
            raise corrupt(c, begin, f"a tagged field of {codec.name} is malformed or ends early")
        if <int64_t>tag <= previous:
            raise corrupt(c, begin, f"tag {tag} of {codec.name} follows tag {previous}")
        if tag > 0x7fffffff:
            # An int32 in Kafka, whose writer refuses the negative number that this would be.
            raise corrupt(c, begin, f"tag {tag} of {codec.name} is no tag")
        if size > c.end - p:
            raise corrupt(
                c, begin, f"tag {tag} of {codec.name} claims {size} of {c.end - p} bytes",
                BudgetExceededError,
            )
        previous = tag
        while k < codec.tagged_count and codec.fields[codec.tagged[k]].tag < <int64_t>tag:
            k += 1
        if k == codec.tagged_count or codec.fields[codec.tagged[k]].tag != <int64_t>tag:
            if (<StructBase>made).unknown_tagged_fields is None:
                (<StructBase>made).unknown_tagged_fields = {}
            (<StructBase>made).unknown_tagged_fields[tag] = PyBytes_FromStringAndSize(
                <const char *>p, size
            )
            p += size
            continue
        f = &codec.fields[codec.tagged[k]]
        if not f.since <= version <= f.until:
            raise corrupt(c, begin, f"tag {tag} is not part of {codec.name} in version {version}")
        # The payload is read as if the buffer ended with it.
        end = c.end
        c.at = p
        c.end = p + size
        fill(made, f, decode_field(codec, f, version, c))
        if c.at != c.end:
            raise corrupt(c, c.at, f"{name_of(codec, f)} is shorter than its size, {size}")
        p = c.end
        c.end = end
    c.at = p
    return 0


cdef object decode_field(StructCodec codec, Field *f, int version, Cursor *c):
    cdef uint32_t raw = 0
    cdef Py_ssize_t count, i, step
    cdef const uint8_t *begin = c.at
    cdef list items
    cdef object item
    if not f.is_array:
        return decode_one(codec, f, version, c)
    c.at = get_uvarint(begin, c.end, &raw)
    if c.at == NULL:
        raise corrupt(c, begin, f"{name_of(codec, f)} ends early")
    if raw == 0:
        if f.nullable:
            return None
        raise corrupt(c, begin, f"{name_of(codec, f)} is null")
    count = <Py_ssize_t>raw - 1
    step = LEAST_SIZE[f.kind]
    if f.kind == STRUCT:
        step = (<StructCodec>f.nested).least_size[version]
    if count > (c.end - c.at) // step:
        raise corrupt(
            c, begin, f"{name_of(codec, f)} claims {count} elements in {c.end - c.at} bytes",
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
            item = decode_one(codec, f, version, c)
            Py_INCREF(item)
            PyList_SET_ITEM(items, i, item)
    return items


cdef inline object fixed_of(int kind, const uint8_t *p):
    """A value of a kind of fixed size, whose bytes are known to be there."""
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


cdef object decode_one(StructCodec codec, Field *f, int version, Cursor *c):
    cdef uint32_t raw = 0
    cdef Py_ssize_t size
    cdef const uint8_t *begin = c.at
    cdef const uint8_t *p
    if f.kind <= UUID:
        size = LEAST_SIZE[f.kind]
        if c.end - begin < size:
            raise corrupt(c, begin, f"{name_of(codec, f)} ends early")
        c.at = begin + size
        return fixed_of(f.kind, begin)
    if f.kind == STRUCT:
        return decode_struct(<StructCodec>f.nested, version, c)
    p = get_uvarint(begin, c.end, &raw)
    if p == NULL:
        raise corrupt(c, begin, f"{name_of(codec, f)} ends early")
    if raw == 0:
        # An element of an array is never null; `nullable` speaks of the array.
        if f.nullable and not f.is_array:
            c.at = p
            return None
        raise corrupt(c, begin, f"{name_of(codec, f)} is null")
    size = <Py_ssize_t>raw - 1
    if size > c.end - p:
        raise corrupt(
            c, begin, f"{name_of(codec, f)} claims {size} of {c.end - p} bytes", BudgetExceededError
        )
    c.at = p + size
    if f.kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *>p, size)
    if size > MAX_STRING_SIZE:
        raise corrupt(c, begin, f"{name_of(codec, f)} has {size} bytes, over {MAX_STRING_SIZE}")
    try:
        return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)
    except UnicodeDecodeError as error:
        raise corrupt(c, p + <Py_ssize_t>error.start, f"{name_of(codec, f)} is not UTF-8") from None


# ---------------------------------------------------------------- objects -> bytes


cdef void open_buffer(Buffer *b) noexcept:
    b.data = b.first
    b.size = 0
    b.capacity = sizeof(b.first)


cdef void close_buffer(Buffer *b) noexcept:
    if b.data != b.first:
        PyMem_Free(b.data)


cdef int reserve(Buffer *b, Py_ssize_t more) except -1:
    """Make room for `more` bytes behind `b.size`."""
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


cdef int write_bytes(Buffer *b, const void *source, Py_ssize_t size) except -1:
    if size >= 0x7fffffff:
        raise InvalidRecordError(f"{size} bytes do not fit in a field")
    reserve(b, 5 + size)
    b.size = put_uvarint(b.data + b.size, <uint32_t>size + 1) - b.data
    memcpy(b.data + b.size, source, size)
    b.size += size
    return 0


cdef object misfit(StructCodec codec, Field *f, object value):
    kind = "[]" if f.is_array else ""
    kind += (<FieldSpec>codec.specs[codec.names[f - codec.fields]]).kind
    return InvalidRecordError(f"{name_of(codec, f)} cannot be {value!r}: its type is {kind}")


cdef int64_t integer_of(StructCodec codec, Field *f, object value) except? -1:
    cdef int64_t integer
    if f.kind == BOOL:
        if value is True or value is False:
            return value is True
        if value != 0 and value != 1:
            raise misfit(codec, f, value)
        return 1 if value else 0
    try:
        integer = PyLong_AsLongLong(value)
    except (TypeError, OverflowError):
        raise misfit(codec, f, value) from None
    if not LOWEST[f.kind] <= integer <= HIGHEST[f.kind]:
        raise misfit(codec, f, value)
    return integer


cdef bint is_default(StructCodec codec, Field *f, object value) except -1:
    if <PyObject *>value == f.default_value:
        return True
    if f.is_array:
        # An array's default is null or empty.
        return <object>f.default_value is not None and value is not None and len(value) == 0
    if value is None or <object>f.default_value is None:
        return False
    if f.kind <= INT64:
        return integer_of(codec, f, value) == f.default_integer
    return value == <object>f.default_value


cdef int encode_struct(StructCodec codec, int version, object owner, Buffer *b) except -1:
    cdef Py_ssize_t i
    cdef uint32_t count = 0
    cdef Field *f
    cdef object unknown
    if type(owner) is not codec.type:
        raise InvalidRecordError(f"not a {codec.name}: {owner!r}")
    for i in range(codec.count):
        f = &codec.fields[i]
        value = codec.get_slot(owner, i)
        if not f.since <= version <= f.until:
            # What the version cannot carry must not vanish in silence.
            if not is_default(codec, f, value):
                raise UnsupportedVersionError(
                    f"{name_of(codec, f)} is not part of version {version}, and is {value!r}"
                )
        elif f.tag < 0:
            encode_field(codec, f, version, value, b)
        elif not is_default(codec, f, value):
            count += 1
    unknown = (<StructBase>owner).unknown_tagged_fields
    if unknown:
        return encode_tags(codec, version, owner, dict(unknown), count, b)
    write_uvarint(b, count)
    for i in range(codec.tagged_count):
        if count == 0:
            break
        f = &codec.fields[codec.tagged[i]]
        if f.since <= version <= f.until:
            value = codec.get_slot(owner, codec.tagged[i])
            if not is_default(codec, f, value):
                encode_tag(codec, f, version, value, b)
                count -= 1
    return 0


cdef int encode_tag(
    StructCodec codec, Field *f, int version, object value, Buffer *b
) except -1:
    cdef Py_ssize_t size_at, size, wider
    write_uvarint(b, f.tag)
    # One byte is set aside for the size; a payload that needs more of them is moved.
    reserve(b, 1)
    size_at = b.size
    b.size += 1
    encode_field(codec, f, version, value, b)
    size = b.size - size_at - 1
    wider = size_of_uvarint(<uint32_t>size) - 1
    if wider:
        reserve(b, wider)
        memmove(b.data + size_at + 1 + wider, b.data + size_at + 1, size)
        b.size += wider
    put_uvarint(b.data + size_at, <uint32_t>size)
    return 0


cdef int encode_tags(
    StructCodec codec, int version, object owner, dict unknown, uint32_t count, Buffer *b
) except -1:
    """The tagged section where unknown tags lie between the known ones."""
    cdef Py_ssize_t i, k = 0
    cdef Field *f
    cdef dict known = {codec.fields[codec.tagged[i]].tag: i for i in range(codec.tagged_count)}
    for tag, payload in unknown.items():
        if tag in known or not isinstance(tag, int) or not 0 <= tag <= 0x7fffffff:
            raise InvalidRecordError(f"{tag!r} is not an unknown tag of {codec.name}")
        if not isinstance(payload, bytes):
            raise InvalidRecordError(f"the payload of tag {tag} of {codec.name} is not bytes")
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
        f = &codec.fields[codec.tagged[k]]
        value = codec.get_slot(owner, codec.tagged[k])
        if f.since <= version <= f.until and not is_default(codec, f, value):
            encode_tag(codec, f, version, value, b)
    return 0


cdef int encode_field(
    StructCodec codec, Field *f, int version, object value, Buffer *b
) except -1:
    cdef tuple items
    if value is None:
        if not f.nullable:
            raise misfit(codec, f, value)
        return write_uvarint(b, 0)
    if not f.is_array:
        return encode_one(codec, f, version, value, b)
    if isinstance(value, (str, bytes)):
        raise misfit(codec, f, value)
    try:
        # A copy, so that nothing can change the elements while they are written.
        items = tuple(value)
    except TypeError:
        raise misfit(codec, f, value) from None
    if len(items) >= 0x7fffffff:
        raise InvalidRecordError(f"{name_of(codec, f)} has too many elements")
    write_uvarint(b, <uint32_t>len(items) + 1)
    for item in items:
        if item is None:
            raise misfit(codec, f, value)
        encode_one(codec, f, version, item, b)
    return 0


cdef int encode_one(
    StructCodec codec, Field *f, int version, object value, Buffer *b
) except -1:
    cdef int64_t integer
    cdef uint8_t *p
    cdef Py_ssize_t size = 0
    cdef const char *text
    cdef uint64_t bits
    cdef double real
    cdef bytes data
    if f.kind <= INT64:
        integer = integer_of(codec, f, value)
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
        b.size += LEAST_SIZE[f.kind]
    elif f.kind == UUID:
        if not isinstance(value, bytes) or len(<bytes>value) != 16:
            raise misfit(codec, f, value)
        reserve(b, 16)
        memcpy(b.data + b.size, PyBytes_AS_STRING(value), 16)
        b.size += 16
    elif f.kind == STRING:
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except (TypeError, UnicodeEncodeError):
            raise misfit(codec, f, value) from None
        if size > MAX_STRING_SIZE:
            raise InvalidRecordError(
                f"{name_of(codec, f)} has {size} bytes, over {MAX_STRING_SIZE}"
            )
        write_bytes(b, text, size)
    elif f.kind == STRUCT:
        encode_struct(<StructCodec>f.nested, version, value, b)
    elif f.kind == BYTES:
        try:
            data = value if type(value) is bytes else bytes(memoryview(value))
        except TypeError:
            raise misfit(codec, f, value) from None
        write_bytes(b, PyBytes_AS_STRING(data), len(data))
    else:
        try:
            real = PyFloat_AsDouble(value)
        except TypeError:
            raise misfit(codec, f, value) from None
        memcpy(&bits, &real, 8)
        reserve(b, 8)
        store_u64(b.data + b.size, bits)
        b.size += 8
    return 0


class Struct(StructBase, metaclass=StructType):
    __slots__ = ()


class Record(RecordBase, Struct):
    __slots__ = ()
