# The plan of a message schema and the objects it describes; see message_schema.pyx.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

# The integer kinds come first, then the other kinds of a fixed size.
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
    RECORDS
    STRUCT


cdef struct Field:
    int kind
    bint is_array
    # The first version in which the value may be null; above MAX_VERSION for none.
    int nullable_since
    int since
    int until
    # Encoding drops the value in a version without the field, instead of rejecting it.
    bint ignorable
    int tag
    # The smallest size of one value on the wire in bytes, and the exact size of a fixed-size kind;
    # see least_size_of.
    int least_size
    Py_ssize_t offset
    # The default of an integer kind, ready to compare.
    int64_t default_integer
    # Borrowed: the schema's specs keep these alive.
    PyObject *default_value
    PyObject *nested


cdef class FieldSpec:
    """One line of a schema: the arguments of `field`."""

    cdef readonly str kind
    cdef readonly bint is_array
    cdef readonly object default
    cdef readonly int since
    cdef readonly int until
    cdef readonly int tag
    cdef readonly bint nullable
    cdef readonly int nullable_since
    cdef readonly bint ignorable
    cdef readonly object of


cdef class StructBase:
    cdef public object unknown_tagged_fields


cdef class RecordBase(StructBase):
    cdef public int version


cdef class StructSchema:
    cdef readonly object type
    cdef readonly str name
    cdef readonly int api_key
    cdef readonly int lowest_version
    cdef readonly int highest_version
    cdef readonly int flexible_since
    cdef readonly dict specs
    cdef tuple names
    cdef dict index
    cdef Field *fields
    cdef Py_ssize_t count
    # Whether it or a nested struct has a field of kind records.
    cdef bint has_records
    # Indices into `fields`: untagged ones in schema order, and tagged ones by tag.
    cdef int *regular
    cdef Py_ssize_t regular_count
    cdef int *tagged
    cdef Py_ssize_t tagged_count
    # By encoding (0: flexible, 1: classic) and version.
    cdef int[2][32] least_size

    cdef int least_size_in(self, int version, bint is_classic)
    cdef void set_slot(self, object owner, Py_ssize_t i, object value)
    cdef int refuse_deleted(self, Field *f) except -1


cdef str name_of(StructSchema schema, Field *f)


cdef inline int least_size_of(Field *f, int version, bint is_classic) noexcept:
    """Return the smallest size of one value on the wire: of one element, for an array."""
    if f.kind == STRUCT:
        return (<StructSchema>f.nested).least_size[is_classic][version]
    if is_classic and f.kind > UUID:
        return 2 if f.kind == STRING else 4
    return f.least_size


cdef inline bint may_be_null_struct(Field *f, int version) noexcept:
    """Return whether the field is a struct after an int8: -1 for null, else 1."""
    return f.kind == STRUCT and not f.is_array and version >= f.nullable_since


cdef inline PyObject **slot_of(object owner, Field *f) noexcept:
    """Return the slot of a field's value in an object; it is NULL until it is set."""
    return <PyObject **>(<char *><PyObject *>owner + f.offset)


cdef inline object value_of(StructSchema schema, object owner, Field *f):
    """Return a field's value; raise AttributeError if it was deleted."""
    cdef PyObject *value = slot_of(owner, f)[0]
    if value == NULL:
        schema.refuse_deleted(f)
    return <object>value


cdef inline object default_of(Field *f):
    """Return the default as a new value: objects do not share arrays and structs."""
    if f.is_array and <object>f.default_value is not None:
        return []
    if f.kind == STRUCT and not f.is_array and <object>f.default_value is not None:
        return (<StructSchema>f.nested).type()
    return <object>f.default_value
