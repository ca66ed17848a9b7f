"""Message schemas interpreted in C: bytes <-> typed Python objects, for metadata and control records.

Owns `Uuid`, the base classes `Struct` and `Record`, `field` (one line of a schema), `StructCodec`
(the schema of one struct in all its versions) and `RecordCodec` (the frame around one record value).
The schemas themselves are the classes of `kraft.records`: a class body is a list of `field(...)`,
from which the metaclass makes slots and a codec. The codec reads and writes the slots by their
place in the object, without a look-up by name.

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
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
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

# By Kind: the bytes that a value of it takes at least on the wire, and the range of the integer kinds.
cdef int[11] LEAST_SIZE = [1, 1, 2, 2, 4, 8, 8, 16, 1, 1, 1]
cdef int64_t[6] LOWEST = [0, -0x80, -0x8000, 0, -0x80000000, INT64_MIN]
cdef int64_t[6] HIGHEST = [1, 0x7f, 0x7fff, 0xffff, 0x7fffffff, 0x7fffffffffffffff]

cdef object MISSING = object()
cdef tuple NO_ARGUMENTS = ()
cdef int MAX_VERSION = 31
cdef int MAX_STRING_SIZE = 0x7fff


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
    """The compiled half of `Struct`; every field of a subclass is a slot that the codec knows by offset."""

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


class Struct(StructBase, metaclass=StructType):
    __slots__ = ()


class Record(RecordBase, metaclass=StructType):
    __slots__ = ()
