"""A message schema as a plan that the codecs execute, and the objects it describes.

Defines `Uuid`, `FieldSpec` and `field` (one line of a schema), `StructSchema` (the plan: for each
field its kind, versions, tag, default, and the offset of its slot in an object), and the bases of
the typed objects, `StructBase` and `RecordBase`.

A plan has two encodings: the flexible one, with tagged sections, and the classic one of versions
before ``flexible_since`` (KIP-482). A nested struct has the encoding of the message around it.

Invariants: a plan never changes once it is made; a field's slot is accessed by its offset in the
object, without a look-up by name; objects do not share arrays and structs that are defaults. The
class bodies of ``kraft.records`` make plans through ``metadata_codec``; ``message_reading`` and
``message_writing`` execute them.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from kraft.errors import UnsupportedVersionError

cdef extern from *:
    """
    #include <structmember.h>
    static inline Py_ssize_t kraft_slot_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    """
    Py_ssize_t slot_offset "kraft_slot_offset"(object descriptor)

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
    "records": RECORDS,
    "struct": STRUCT,
}

# By Kind: the smallest size of a value on the wire in bytes.
cdef int[12] LEAST_SIZE = [1, 1, 2, 2, 4, 8, 8, 16, 1, 1, 1, 1]

cdef object MISSING = object()
cdef int MAX_VERSION = 31


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


cdef class FieldSpec:
    """One line of a schema: the arguments of `field`."""

    def __repr__(self):
        kind = f"[]{self.kind}" if self.is_array else self.kind
        return f"field({kind!r}, since={self.since}, tag={self.tag}, nullable={self.nullable})"


cdef dict IMPLICIT_DEFAULT = {
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}


def field(
    str kind, default=MISSING, *, int since=0, int until=MAX_VERSION, int tag=-1,
    bint nullable=False, int nullable_since=0, bint ignorable=False, of=None,
):
    cdef FieldSpec spec = FieldSpec.__new__(FieldSpec)
    spec.is_array = kind.startswith("[]")
    spec.kind = kind[2:] if spec.is_array else kind
    if spec.kind not in KINDS:
        raise ValueError(f"no such kind of field: {kind!r}")
    if (spec.kind == "struct") != (of is not None):
        raise ValueError("`of` is required for a struct field and not allowed for others")
    if nullable and spec.kind == "struct" and not spec.is_array and tag >= 0:
        raise ValueError("nullable structs with a tag are not supported: no schema has one")
    if tag >= 0 and (spec.kind == "records" or (of and (<StructSchema>of.schema).has_records)):
        raise ValueError("records with a tag are not supported: no schema has them")
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
    spec.nullable_since = nullable_since
    spec.ignorable = ignorable
    spec.of = of
    return spec


cdef class StructBase:
    """The compiled half of `Struct`; the schema accesses a field's slot by its offset."""

    def __init__(self, *args, **kwargs):
        cdef StructSchema schema = type(self).schema
        cdef Py_ssize_t i, given = len(args)
        cdef object value
        if given > schema.count:
            raise TypeError(f"{schema.name} has {schema.count} fields, {given} were given")
        for i in range(given):
            schema.set_slot(self, i, args[i])
        for key, value in kwargs.items():
            position = schema.index.get(key)
            if position is None:
                # `version` and `unknown_tagged_fields` are plain attributes.
                if key not in ("unknown_tagged_fields", "version") or not hasattr(self, key):
                    raise TypeError(f"{schema.name} has no field {key!r}")
                setattr(self, key, value)
                continue
            if <Py_ssize_t>position < given:
                raise TypeError(f"{schema.name}: {key!r} was given twice")
            schema.set_slot(self, position, value)
        for i in range(given, schema.count):
            if slot_of(self, &schema.fields[i])[0] == NULL:
                schema.set_slot(self, i, default_of(&schema.fields[i]))

    def __eq__(self, other):
        cdef StructSchema schema
        cdef Py_ssize_t i
        cdef Field *f
        if type(self) is not type(other):
            return NotImplemented
        schema = type(self).schema
        for i in range(schema.count):
            f = &schema.fields[i]
            if value_of(schema, self, f) != value_of(schema, other, f):
                return False
        return (self.unknown_tagged_fields or None) == (
            (<StructBase>other).unknown_tagged_fields or None
        )

    def __repr__(self):
        cdef StructSchema schema = type(self).schema
        cdef Py_ssize_t i
        cdef list parts = []
        for i in range(schema.count):
            value = value_of(schema, self, &schema.fields[i])
            if schema.fields[i].tag < 0 or value != <object>schema.fields[i].default_value:
                parts.append(f"{schema.names[i]}={value!r}")
        if self.unknown_tagged_fields:
            parts.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{schema.name}({', '.join(parts)})"

    def __reduce__(self):
        cdef StructSchema schema = type(self).schema
        values = tuple([value_of(schema, self, &schema.fields[i]) for i in range(schema.count)])
        extra = {"unknown_tagged_fields": self.unknown_tagged_fields}
        if isinstance(self, RecordBase):
            extra["version"] = (<RecordBase>self).version
        return rebuild, (type(self), values, extra)

    def replace(self, **changes):
        _, (cls, values, extra) = self.__reduce__()
        return cls(**{**dict(zip(cls.__match_args__, values)), **extra, **changes})

    def to_dict(self):
        cdef StructSchema schema = type(self).schema
        cdef dict made = {}
        for i in range(schema.count):
            value = value_of(schema, self, &schema.fields[i])
            if isinstance(value, StructBase):
                value = value.to_dict()
            elif isinstance(value, list):
                value = [e.to_dict() if isinstance(e, StructBase) else e for e in value]
            made[schema.names[i]] = value
        return made


cdef class RecordBase(StructBase):
    """The compiled half of `Record`."""

    def __cinit__(self):
        self.version = -1


def rebuild(cls, values, extra):
    """Rebuild a struct, for pickle and copy."""
    return cls(*values, **extra)


cdef str name_of(StructSchema schema, Field *f):
    return f"{schema.name}.{schema.names[f - schema.fields]}"


cdef class StructSchema:
    """The schema of one struct in all its versions, as a plan for the codecs."""

    def __init__(
        self, type, dict specs, *, int api_key=-1, versions=(0, MAX_VERSION), int flexible_since=0
    ):
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
        self.flexible_since = flexible_since
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
            f.nullable_since = spec.nullable_since if spec.nullable else MAX_VERSION + 1
            f.since = spec.since
            f.until = spec.until
            f.ignorable = spec.ignorable
            f.tag = spec.tag
            f.least_size = LEAST_SIZE[f.kind]
            f.offset = slot_offset(type.__dict__[name])
            if f.offset < 0:
                raise TypeError(f"{self.name}.{name} is not a slot")
            f.default_value = <PyObject *>spec.default
            if f.kind <= INT64 and not f.is_array:
                f.default_integer = spec.default
            if f.kind == STRUCT:
                f.nested = <PyObject *>(<StructSchema?>spec.of.schema)
                self.has_records |= (<StructSchema>f.nested).has_records
            self.has_records |= f.kind == RECORDS
            if f.tag < 0:
                self.regular[self.regular_count] = i
                self.regular_count += 1
        for i in sorted(range(self.count), key=lambda i: self.fields[i].tag):
            if self.fields[i].tag >= 0:
                self.tagged[self.tagged_count] = i
                self.tagged_count += 1
        for version in range(MAX_VERSION + 1):
            self.least_size[0][version] = self.least_size_in(version, False)
            # At least 1, so that the bytes left bound the number of structs without fields.
            self.least_size[1][version] = max(self.least_size_in(version, True), 1)

    def __dealloc__(self):
        PyMem_Free(self.fields)
        PyMem_Free(self.regular)
        PyMem_Free(self.tagged)

    cdef int least_size_in(self, int version, bint is_classic):
        cdef Py_ssize_t i
        cdef Field *f
        cdef int size = 0 if is_classic else 1
        for i in range(self.regular_count):
            f = &self.fields[self.regular[i]]
            if f.since <= version <= f.until:
                if f.is_array:
                    size += 4 if is_classic else 1
                elif may_be_null_struct(f, version):
                    size += 1
                else:
                    size += least_size_of(f, version, is_classic)
        return size

    cdef void set_slot(self, object owner, Py_ssize_t i, object value):
        cdef PyObject **slot = slot_of(owner, &self.fields[i])
        cdef PyObject *old = slot[0]
        Py_INCREF(value)
        slot[0] = <PyObject *>value
        Py_XDECREF(old)

    cdef int refuse_deleted(self, Field *f) except -1:
        raise AttributeError(f"{name_of(self, f)} was deleted")

    def check_version(self, int version):
        if not self.lowest_version <= version <= self.highest_version:
            raise UnsupportedVersionError(
                f"{self.name} has versions {self.lowest_version}-{self.highest_version},"
                f" not {version}"
            )
