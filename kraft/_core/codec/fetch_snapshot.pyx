"""FetchSnapshot responses of the metadata log, versions 0 and 1: encode and decode.

As in ``fetch``, with which it shares parts, a response is encoded as the bytes before and after
the snapshot's bytes. ``kraft.server`` calls it; the tests compare it with the `kio` package.

    int32 throttle | int16 error
    | [string topic | [int32 partition | int16 error
       | int64 end offset | int32 epoch | tags   (snapshot id)
       | int64 size | int64 position | bytes records
       | tags 0: int32 leader, int32 epoch, tags] | tags]
    | tags 0: [int32 node | string host | uint16 port | tags] (1+)

[…] is a compact array, and every struct ends with a tagged section. Source: FetchSnapshotResponse
of Kafka 4.3 (KIP-595, 630, 853); the fields that Kafka's ``RaftUtil`` sets.

Invariant: every length and count is compared with the bytes left before it is used; every error is
a CorruptRecordError with the position.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from kraft._core.codec.fetch cimport (
    Leader, endpoint_of, endpoints_tag, fail, open_cursor, records_size_of, take_endpoints,
)
from kraft._core.codec.rpc_cursor cimport (
    Cursor, Span, Tags, begin_tags, next_tag, put_i8, put_i16, put_i32, put_i64, put_raw,
    skip_payload, skip_tags, take, take_bytes, take_i16, take_i32, take_i64, take_size, take_string,
)
from kraft._core.bytes.wire cimport put_uvarint

from kraft._core.codec.fetch import METADATA_TOPIC
from kraft.errors import InvalidRequestError, UnsupportedVersionError

cdef int LAST_FETCH_SNAPSHOT_VERSION = 1

cdef bytes TOPIC_NAME_BYTES = METADATA_TOPIC.encode()
cdef const uint8_t *TOPIC_NAME = <const uint8_t *><const char *>TOPIC_NAME_BYTES
cdef Py_ssize_t TOPIC_NAME_SIZE = len(TOPIC_NAME_BYTES)


cdef int check_fetch_snapshot_version(int version) except -1:
    if not 0 <= version <= LAST_FETCH_SNAPSHOT_VERSION:
        raise UnsupportedVersionError(
            f"FetchSnapshot version {version}: 0 to {LAST_FETCH_SNAPSHOT_VERSION} are known"
        )
    return 0


def decode_fetch_snapshot_response(body, int version, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef Cursor c
    cdef Tags tags
    cdef Leader leader
    cdef Span records, name
    cdef Py_ssize_t topics, partitions, _i, _k
    cdef int16_t top_error, error = 0
    cdef int32_t partition = 0, snapshot_epoch = 0
    cdef int64_t snapshot_end = 0, size = 0, place = 0
    cdef bint is_ours
    check_fetch_snapshot_version(version)
    leader.id = 0
    leader.epoch = 0
    leader.is_found = False
    open_cursor(body, position, &view, &c)
    try:
        records.data = c.at
        records.size = 0
        take(&c, 4)
        top_error = take_i16(&c)
        topics = take_size(&c, 3, False)
        is_ours = topics == 1
        for _i in range(topics):
            name = take_string(&c, False)
            if name.size != TOPIC_NAME_SIZE or memcmp(name.data, TOPIC_NAME, name.size) != 0:
                is_ours = False
            partitions = take_size(&c, 37, False)
            if partitions != 1:
                is_ours = False
            for _k in range(partitions):
                partition = take_i32(&c)
                error = take_i16(&c)
                snapshot_end = take_i64(&c)
                snapshot_epoch = take_i32(&c)
                skip_tags(&c)
                size = take_i64(&c)
                place = take_i64(&c)
                records = take_bytes(&c, False)
                tags = begin_tags(&c)
                while next_tag(&c, &tags):
                    if tags.tag == 0:
                        leader.id = take_i32(&c)
                        leader.epoch = take_i32(&c)
                        skip_tags(&c)
                    else:
                        skip_payload(&c)
                if c.bad:
                    break
            skip_tags(&c)
            if c.bad:
                break
        tags = begin_tags(&c)
        while next_tag(&c, &tags):
            if tags.tag == 0 and version >= 1:
                take_endpoints(&c, False, &leader)
            elif tags.tag == 0:
                c.bad = True
            else:
                skip_payload(&c)
        if c.bad or c.at != c.end:
            fail(&c, f"a FetchSnapshot response in version {version}")
        if top_error == 0 and (not is_ours or partition != 0):
            raise InvalidRequestError("a FetchSnapshot response is not of the metadata log")
        if top_error != 0:
            return top_error, -1, -1, None, (0, 0), 0, 0, 0, 0
        return (
            error, leader.epoch, leader.id, endpoint_of(&c, &leader),
            (snapshot_end, snapshot_epoch), size, place, records.data - c.start, records.size,
        )
    finally:
        PyBuffer_Release(&view)


def encode_fetch_snapshot_response(
    int version, int16_t error, int32_t epoch, int32_t leader_id, tuple leader_endpoint,
    object snapshot_id, int64_t size, int64_t position, Py_ssize_t records_size,
):
    cdef uint8_t[112] head
    cdef uint8_t[16] tags
    cdef uint8_t *p
    cdef int64_t snapshot_end = 0
    cdef int32_t snapshot_epoch = 0
    check_fetch_snapshot_version(version)
    records_size_of(records_size)
    if snapshot_id is not None:
        snapshot_end, snapshot_epoch = snapshot_id
    p = put_i32(head, 0)
    p = put_i16(p, 0)
    p = put_i8(p, 2)
    p = put_uvarint(p, TOPIC_NAME_SIZE + 1)
    p = put_raw(p, TOPIC_NAME, TOPIC_NAME_SIZE)
    p = put_i8(p, 2)
    p = put_i32(p, 0)
    p = put_i16(p, error)
    p = put_i64(p, snapshot_end)
    p = put_i32(p, snapshot_epoch)
    p = put_i8(p, 0)
    p = put_i64(p, size)
    p = put_i64(p, position)
    p = put_uvarint(p, <uint32_t>records_size + 1)
    prefix = PyBytes_FromStringAndSize(<const char *>head, p - head)
    if leader_id != 0 or epoch != 0:
        p = put_i8(put_i8(put_i8(tags, 1), 0), 9)
        p = put_i8(put_i32(put_i32(p, leader_id), epoch), 0)
    else:
        p = put_i8(tags, 0)
    p = put_i8(p, 0)
    suffix = PyBytes_FromStringAndSize(<const char *>tags, p - tags)
    if version >= 1 and leader_endpoint is not None and leader_id >= 0:
        return prefix, suffix + endpoints_tag(leader_id, leader_endpoint, False)
    return prefix, suffix + b"\0"
