"""Metadata records and RPC bodies: bytes <-> typed objects, by schemas interpreted in C.

Defines `StructCodec` (one struct in all its versions), `RecordCodec` (the frame around a record
value) and the bases of the typed classes, `Struct`, `Record` and `Message` (the body of an RPC).
The schemas are the classes of `kraft.records` and `kraft.protocol`: from a class body of
`field(...)` lines the metaclass makes slots and a codec.
``message_schema`` has the plan of a schema and the objects, ``message_reading`` and
``message_writing`` decode and encode.

    record value   uvarint frame version = 1 | uvarint api key | uvarint version | struct
    struct         fields of this version in schema order | tagged section
    tagged section uvarint count, then by ascending tag: uvarint tag | uvarint size | payload
    string, bytes, records
                   uvarint length + 1 (0 = null) | bytes
    array          uvarint count + 1 (0 = null) | elements
    uuid           16 bytes; integers and float64 are big-endian; bool is one byte

The versions of an RPC before ``flexible_since`` have the classic encoding:

    struct         fields of this version in schema order, no tagged section
    string         int16 length (-1 = null) | bytes
    bytes, records, array
                   int32 length or count (-1 = null) | bytes or elements

Invariants: a count or length is compared with the bytes left before memory is allocated; a tagged
field is written only if it differs from its default; unknown tagged fields are kept on the object
and written in their order. Rules: KIP-482, and Kafka's generated classes
(org.apache.kafka.message).
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t

from kraft._core.codec.message_reading cimport (
    Cursor, check_all_read, corrupt, decode_struct, open_cursor,
)
from kraft._core.codec.message_schema cimport FieldSpec, RecordBase, StructBase, StructSchema
from kraft._core.codec.message_writing cimport (
    Buffer, close_buffer, encode_struct, end_segment, open_buffer,
)
from kraft._core.bytes.wire cimport get_uvarint, put_uvarint

from kraft.errors import InvalidRecordError, UnsupportedVersionError

cdef uint32_t FRAME_VERSION = 1


cdef class StructCodec(StructSchema):
    """The codec of one struct in all its versions."""

    def decode(self, buffer, int version, Py_ssize_t position=0, end=None):
        return self.read(buffer, version, position, end, False)

    def encode(self, value, int version):
        return self.write(value, version)

    cdef object read(
        self, object buffer, int version, Py_ssize_t position, object end, bint is_lenient,
        bint is_whole=True,
    ):
        cdef Py_buffer view
        cdef Cursor c
        self.check_version(version)
        open_cursor(buffer, position, end, &view, &c)
        c.is_classic = version < self.flexible_since
        c.is_lenient = is_lenient
        try:
            made = decode_struct(self, version, &c)
            if is_whole:
                check_all_read(self, &c)
            if isinstance(made, RecordBase):
                (<RecordBase>made).version = version
            return made
        finally:
            PyBuffer_Release(&view)

    cdef bytes write(self, object value, int version):
        cdef Buffer b
        self.check_version(version)
        open_buffer(&b)
        b.is_classic = version < self.flexible_since
        try:
            encode_struct(self, version, value, &b)
            return PyBytes_FromStringAndSize(<char *>b.data, b.size)
        finally:
            close_buffer(&b)

    cdef object write_segments(self, object value, int version):
        cdef Buffer b
        cdef list segments = []
        self.check_version(version)
        open_buffer(&b)
        b.is_classic = version < self.flexible_since
        b.segments = <PyObject *>segments
        try:
            encode_struct(self, version, value, &b)
            end_segment(&b)
            return segments, b.segments_size
        finally:
            close_buffer(&b)


cdef class RecordCodec:
    """The codec of framed record values, for a set of record types."""

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


class StructType(type):
    """The metaclass that makes slots and a codec from a class body of `field(...)` lines."""

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


class Struct(StructBase, metaclass=StructType):
    __slots__ = ()


class Record(RecordBase, Struct):
    __slots__ = ()


class Message(Struct):
    __slots__ = ()

    @classmethod
    def decode(cls, body, int version, Py_ssize_t position=0):
        return (<StructCodec>cls.schema).read(body, version, position, None, True)

    @classmethod
    def decode_prefix(cls, body, int version):
        return (<StructCodec>cls.schema).read(body, version, 0, None, True, False)

    def encode(self, int version):
        return (<StructCodec>type(self).schema).write(self, version)

    def encode_segments(self, int version):
        return (<StructCodec>type(self).schema).write_segments(self, version)
