"""Fetch requests and responses of the metadata log, and request headers: encode and decode.

Handles the layouts below in the versions that the raft layer can use (13-18, which name topics by
id). A body must be for the one partition of the metadata log; any other is read only far enough to
detect that. A response is encoded as the bytes before and after the log's records, so that the
records go to the socket as they are on disk. ``fetch_snapshot`` shares parts of this module.
``kraft.server`` calls it; the tests compare it with the `kio` package.

    Fetch request   int32 replica id (13-14) | int32 max wait ms | int32 min bytes
                    | int32 max bytes | int8 isolation | int32 session id | int32 session epoch
                    | [uuid topic id | [int32 partition | int32 leader epoch | int64 offset
                       | int32 last fetched epoch | int64 log start | int32 max bytes
                       | tags 0: uuid directory (17+), 1: int64 high watermark (18+)] | tags]
                    | [uuid topic id | [int32] | tags] forgotten | string rack
                    | tags 0: nullable string cluster id, 1: int32 replica, int64 epoch, tags (15+)
    Fetch response  int32 throttle | int16 error | int32 session id
                    | [uuid topic id | [int32 partition | int16 error | int64 high watermark
                       | int64 last stable offset | int64 log start
                       | [int64 producer | int64 offset | tags] aborted, nullable
                       | int32 preferred replica | bytes records, nullable
                       | tags 0: int32 epoch, int64 end offset, tags   (diverging epoch)
                              1: int32 leader, int32 epoch, tags
                              2: int64 end offset, int32 epoch, tags   (snapshot id)] | tags]
                    | tags 0: [int32 node | string host | int32 port | string rack | tags] (16+)

[…] is a compact array, and every struct ends with a tagged section. Sources: FetchRequest
and FetchResponse of Kafka 4.3 (KIP-595, 853, 1166); the fields that Kafka's ``RaftUtil`` sets.

Invariant: every length and count is compared with the bytes left before it is used; every error is
a CorruptRecordError with the position.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from kraft._core.codec.rpc_cursor cimport (
    MAX_STRING_SIZE, Cursor, Span, Tags, begin_tags, next_tag, put_i8, put_i16, put_i32, put_i64,
    put_raw, skip_payload, skip_tags, take, take_bytes, take_i16, take_i32, take_i64, take_size,
    take_string, take_u16,
)
from kraft._core.bytes.wire cimport put_uvarint, size_of_uvarint

from kraft._core.codec.message_schema import Uuid
from kraft.errors import CorruptRecordError, InvalidRequestError, UnsupportedVersionError

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = Uuid(b"\0" * 15 + b"\x01")

cdef int FIRST_FETCH_VERSION = 13
cdef int LAST_FETCH_VERSION = 18
cdef int64_t ANY_HIGH_WATERMARK = 0x7fffffffffffffff

cdef bytes TOPIC_ID_BYTES = bytes(METADATA_TOPIC_ID)
cdef const uint8_t *TOPIC_ID = <const uint8_t *><const char *>TOPIC_ID_BYTES
cdef bytes ZERO_BYTES = b"\0" * 16
cdef const uint8_t *ZEROS = <const uint8_t *><const char *>ZERO_BYTES

cdef int fail(Cursor *c, str what) except -1:
    raise CorruptRecordError(
        f"{what} is malformed or ends early", position=c.at - c.start
    )


cdef str text_of(Cursor *c, Span span):
    if span.size < 0:
        return None
    try:
        return PyUnicode_DecodeUTF8(<const char *>span.data, span.size, NULL)
    except UnicodeDecodeError as error:
        raise CorruptRecordError(
            "a string is not UTF-8", position=span.data - c.start + error.start
        ) from None


cdef int open_cursor(object buffer, Py_ssize_t position, Py_buffer *view, Cursor *c) except -1:
    PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    if not 0 <= position <= view.len:
        PyBuffer_Release(view)
        raise ValueError(f"byte {position} of a buffer of {view.len}")
    c.start = <const uint8_t *>view.buf
    c.at = c.start + position
    c.end = c.start + view.len
    c.bad = False
    return 0


def decode_request_header(frame, dict flexible_since):
    cdef Py_buffer view
    cdef Cursor c
    cdef int16_t api_key, version, size
    cdef int32_t correlation
    cdef Span client
    open_cursor(frame, 0, &view, &c)
    try:
        api_key = take_i16(&c)
        version = take_i16(&c)
        correlation = take_i32(&c)
        since = flexible_since.get(api_key)
        if c.bad or since is None:
            if c.bad:
                fail(&c, "a request header")
            return api_key, version, correlation, None, c.at - c.start
        size = take_i16(&c)
        client.data = c.at
        client.size = size
        if c.bad or size < -1 or size > c.end - c.at:
            fail(&c, "a request header")
        if size > 0:
            c.at += size
        if version >= <int>since:
            skip_tags(&c)
        if c.bad:
            fail(&c, "a request header")
        # As in Kafka: a client in C may have an id of any bytes.
        name = None
        if size >= 0:
            name = PyUnicode_DecodeUTF8(<const char *>client.data, size, "replace")
        return api_key, version, correlation, name, c.at - c.start
    finally:
        PyBuffer_Release(&view)


cdef int check_fetch_version(int version) except -1:
    if not FIRST_FETCH_VERSION <= version <= LAST_FETCH_VERSION:
        raise UnsupportedVersionError(
            f"Fetch version {version}: the metadata log is fetched with "
            f"{FIRST_FETCH_VERSION} to {LAST_FETCH_VERSION}"
        )
    return 0


def decode_fetch_request(body, int version, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef Cursor c
    cdef Tags tags
    cdef Span cluster
    cdef Py_ssize_t topics, partitions, _i, _k
    cdef int32_t replica_id = -1, max_wait_ms, max_bytes
    cdef int32_t epoch = -1, last_fetched_epoch = -1, partition = 0
    cdef int64_t offset = 0, high_watermark = ANY_HIGH_WATERMARK
    cdef const uint8_t *directory = NULL
    cdef bint is_ours
    check_fetch_version(version)
    open_cursor(body, position, &view, &c)
    try:
        if version <= 14:
            replica_id = take_i32(&c)
        max_wait_ms = take_i32(&c)
        take(&c, 4)
        max_bytes = take_i32(&c)
        take(&c, 9)
        topics = take_size(&c, 18, False)
        is_ours = topics == 1
        for _i in range(topics):
            if memcmp(take(&c, 16), TOPIC_ID, 16) != 0:
                is_ours = False
            partitions = take_size(&c, 33, False)
            if partitions != 1:
                is_ours = False
            for _k in range(partitions):
                partition = take_i32(&c)
                epoch = take_i32(&c)
                offset = take_i64(&c)
                last_fetched_epoch = take_i32(&c)
                take(&c, 12)
                directory = NULL
                high_watermark = ANY_HIGH_WATERMARK
                tags = begin_tags(&c)
                while next_tag(&c, &tags):
                    if tags.tag == 0 and version >= 17:
                        directory = take(&c, 16)
                    elif tags.tag == 1 and version >= 18:
                        high_watermark = take_i64(&c)
                    elif tags.tag <= 1:
                        c.bad = True
                    else:
                        skip_payload(&c)
                if c.bad:
                    break
            skip_tags(&c)
            if c.bad:
                break
        for _i in range(take_size(&c, 18, False)):
            take(&c, 16)
            partitions = take_size(&c, 4, False)
            if not c.bad:
                c.at += 4 * partitions
            skip_tags(&c)
            if c.bad:
                break
        take_string(&c, False)
        cluster.data = NULL
        cluster.size = -1
        tags = begin_tags(&c)
        while next_tag(&c, &tags):
            if tags.tag == 0:
                cluster = take_string(&c, True)
            elif tags.tag == 1 and version >= 15:
                replica_id = take_i32(&c)
                take(&c, 8)
                skip_tags(&c)
            elif tags.tag == 1:
                c.bad = True
            else:
                skip_payload(&c)
        if c.bad or c.at != c.end:
            fail(&c, f"a Fetch request in version {version}")
        if not is_ours or partition != 0:
            return None
        return (
            text_of(&c, cluster), replica_id, uuid_at(directory), epoch, offset,
            last_fetched_epoch, max_wait_ms, max_bytes, high_watermark,
        )
    finally:
        PyBuffer_Release(&view)


cdef object uuid_at(const uint8_t *p):
    """Return a uuid, or None for the zero one."""
    if p == NULL or memcmp(p, ZEROS, 16) == 0:
        return None
    return Uuid(PyBytes_FromStringAndSize(<const char *>p, 16))


cdef void take_endpoints(Cursor *c, bint is_fetch, Leader *leader) noexcept nogil:
    """Read the leader's endpoint from the endpoints at the end of a response."""
    cdef Py_ssize_t _i
    cdef int32_t node, port
    cdef Span host
    for _i in range(take_size(c, 11 if is_fetch else 8, False)):
        node = take_i32(c)
        host = take_string(c, False)
        if is_fetch:
            port = take_i32(c)
            take_string(c, True)
        else:
            port = take_u16(c)
        skip_tags(c)
        if c.bad:
            return
        if node == leader.id and leader.id >= 0 and not leader.is_found:
            leader.is_found = True
            leader.host = host
            leader.port = port


cdef object endpoint_of(Cursor *c, Leader *leader):
    if not leader.is_found:
        return None
    return text_of(c, leader.host), leader.port


def decode_fetch_response(body, int version, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef Cursor c
    cdef Tags tags
    cdef Leader leader
    cdef Span records
    cdef Py_ssize_t topics, partitions, aborted, _i, _k, _n
    cdef int16_t top_error, error = 0
    cdef int32_t partition = 0, diverging_epoch = -1, snapshot_epoch = -1
    cdef int64_t high_watermark = -1, log_start_offset = -1
    cdef int64_t diverging_end = -1, snapshot_end = -1
    cdef bint is_ours
    check_fetch_version(version)
    leader.id = -1
    leader.epoch = -1
    leader.is_found = False
    open_cursor(body, position, &view, &c)
    try:
        records.data = c.at
        records.size = 0
        take(&c, 4)
        top_error = take_i16(&c)
        take(&c, 4)
        topics = take_size(&c, 18, False)
        is_ours = topics == 1
        for _i in range(topics):
            if memcmp(take(&c, 16), TOPIC_ID, 16) != 0:
                is_ours = False
            partitions = take_size(&c, 37, False)
            if partitions != 1:
                is_ours = False
            for _k in range(partitions):
                partition = take_i32(&c)
                error = take_i16(&c)
                high_watermark = take_i64(&c)
                take(&c, 8)
                log_start_offset = take_i64(&c)
                aborted = take_size(&c, 17, True)
                for _n in range(aborted):
                    take(&c, 16)
                    skip_tags(&c)
                    if c.bad:
                        break
                take(&c, 4)
                records = take_bytes(&c, True)
                tags = begin_tags(&c)
                while next_tag(&c, &tags):
                    if tags.tag == 0:
                        diverging_epoch = take_i32(&c)
                        diverging_end = take_i64(&c)
                        skip_tags(&c)
                    elif tags.tag == 1:
                        leader.id = take_i32(&c)
                        leader.epoch = take_i32(&c)
                        skip_tags(&c)
                    elif tags.tag == 2:
                        snapshot_end = take_i64(&c)
                        snapshot_epoch = take_i32(&c)
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
            if tags.tag == 0 and version >= 16:
                take_endpoints(&c, True, &leader)
            elif tags.tag == 0:
                c.bad = True
            else:
                skip_payload(&c)
        if c.bad or c.at != c.end:
            fail(&c, f"a Fetch response in version {version}")
        if top_error == 0 and (not is_ours or partition != 0):
            raise InvalidRequestError("a Fetch response is not of the metadata log")
        if top_error != 0:
            return top_error, -1, -1, None, -1, -1, None, None, 0, 0
        return (
            error, leader.epoch, leader.id, endpoint_of(&c, &leader), high_watermark,
            log_start_offset,
            None if diverging_epoch < 0 and diverging_end < 0
            else (diverging_epoch, diverging_end),
            None if snapshot_epoch < 0 and snapshot_end < 0 else (snapshot_end, snapshot_epoch),
            records.data - c.start, max(records.size, 0),
        )
    finally:
        PyBuffer_Release(&view)


# -- writing

cdef bytes string_bytes(str text):
    cdef bytes encoded = text.encode()
    if len(encoded) > MAX_STRING_SIZE:
        raise InvalidRequestError(f"a string of {len(encoded)} bytes, over {MAX_STRING_SIZE}")
    return encoded


def encode_fetch_request(
    int version, str cluster_id, int32_t replica_id, object directory_id, int32_t epoch,
    int64_t offset, int32_t last_fetched_epoch, int32_t max_wait_ms, int32_t max_bytes,
    int64_t high_watermark,
):
    cdef bytes cluster = None if cluster_id is None else string_bytes(cluster_id)
    cdef Py_ssize_t cluster_size = 0 if cluster is None else len(cluster)
    cdef bint has_directory, has_high_watermark, has_replica
    cdef const char *directory = NULL
    cdef uint8_t *data
    cdef uint8_t *p
    check_fetch_version(version)
    if directory_id is not None:
        if not isinstance(directory_id, bytes) or PyBytes_GET_SIZE(directory_id) != 16:
            raise ValueError(f"a directory id has 16 bytes, unlike {directory_id!r}")
        directory = PyBytes_AS_STRING(directory_id)
    has_directory = (
        version >= 17 and directory_id is not None and memcmp(directory, ZEROS, 16) != 0
    )
    has_high_watermark = version >= 18 and high_watermark != ANY_HIGH_WATERMARK
    has_replica = version >= 15 and replica_id != -1
    data = <uint8_t *>PyMem_Malloc(192 + cluster_size)
    if data == NULL:
        raise MemoryError
    try:
        p = data
        if version <= 14:
            p = put_i32(p, replica_id)
        p = put_i32(p, max_wait_ms)
        p = put_i32(p, 0)
        p = put_i32(p, max_bytes)
        p = put_i8(p, 0)
        p = put_i32(p, 0)
        p = put_i32(p, -1)
        p = put_i8(p, 2)
        p = put_raw(p, TOPIC_ID, 16)
        p = put_i8(p, 2)
        p = put_i32(p, 0)
        p = put_i32(p, epoch)
        p = put_i64(p, offset)
        p = put_i32(p, last_fetched_epoch)
        p = put_i64(p, -1)
        p = put_i32(p, 0)
        p = put_i8(p, has_directory + has_high_watermark)
        if has_directory:
            p = put_i8(put_i8(p, 0), 16)
            p = put_raw(p, directory, 16)
        if has_high_watermark:
            p = put_i8(put_i8(p, 1), 8)
            p = put_i64(p, high_watermark)
        p = put_i8(p, 0)
        p = put_i8(p, 1)
        p = put_i8(p, 1)
        p = put_i8(p, (cluster is not None) + has_replica)
        if cluster is not None:
            p = put_i8(p, 0)
            p = put_uvarint(p, cluster_size + size_of_uvarint(cluster_size + 1))
            p = put_uvarint(p, cluster_size + 1)
            p = put_raw(p, <const char *>cluster, cluster_size)
        if has_replica:
            p = put_i8(put_i8(p, 1), 13)
            p = put_i32(p, replica_id)
            p = put_i64(p, -1)
            p = put_i8(p, 0)
        return PyBytes_FromStringAndSize(<const char *>data, p - data)
    finally:
        PyMem_Free(data)


cdef int32_t records_size_of(Py_ssize_t size) except -1:
    if not 0 <= size < 0x7fffffff:
        raise InvalidRequestError(f"{size} bytes do not fit into a response")
    return <int32_t>size


def encode_fetch_response(
    int version, int16_t error, int32_t epoch, int32_t leader_id, tuple leader_endpoint,
    int64_t high_watermark, int64_t log_start_offset, object diverging_epoch, object snapshot_id,
    Py_ssize_t records_size,
):
    cdef uint8_t[96] head
    cdef uint8_t[80] tags
    cdef uint8_t *p
    cdef uint8_t *count
    cdef bytes suffix
    cdef int32_t snapshot_epoch, end_epoch
    cdef int64_t snapshot_end, end_offset
    check_fetch_version(version)
    records_size_of(records_size)
    p = put_i32(head, 0)
    p = put_i16(p, 0)
    p = put_i32(p, 0)
    p = put_i8(p, 2)
    p = put_raw(p, TOPIC_ID, 16)
    p = put_i8(p, 2)
    p = put_i32(p, 0)
    p = put_i16(p, error)
    p = put_i64(p, high_watermark)
    p = put_i64(p, -1)
    p = put_i64(p, log_start_offset)
    p = put_i8(p, 1)
    p = put_i32(p, -1)
    p = put_uvarint(p, <uint32_t>records_size + 1)
    prefix = PyBytes_FromStringAndSize(<const char *>head, p - head)

    count = tags
    count[0] = 0
    p = tags + 1
    if diverging_epoch is not None:
        end_epoch, end_offset = diverging_epoch
        if end_epoch != -1 or end_offset != -1:
            count[0] += 1
            p = put_i8(put_i8(p, 0), 13)
            p = put_i8(put_i64(put_i32(p, end_epoch), end_offset), 0)
    if leader_id != -1 or epoch != -1:
        count[0] += 1
        p = put_i8(put_i8(p, 1), 9)
        p = put_i8(put_i32(put_i32(p, leader_id), epoch), 0)
    if snapshot_id is not None:
        snapshot_end, snapshot_epoch = snapshot_id
        if snapshot_epoch != -1 or snapshot_end != -1:
            count[0] += 1
            p = put_i8(put_i8(p, 2), 13)
            p = put_i8(put_i32(put_i64(p, snapshot_end), snapshot_epoch), 0)
    p = put_i8(p, 0)
    suffix = PyBytes_FromStringAndSize(<const char *>tags, p - tags)
    # Kafka's raft layer knows node endpoints in a Fetch response from version 17 on.
    if version >= 17 and leader_endpoint is not None and leader_id >= 0:
        return prefix, suffix + endpoints_tag(leader_id, leader_endpoint, True)
    return prefix, suffix + b"\0"


cdef bytes endpoints_tag(int32_t node, tuple endpoint, bint is_fetch):
    """Return the tagged section of a response with one endpoint."""
    cdef bytes host = string_bytes(endpoint[0])
    cdef int32_t port = endpoint[1]
    cdef Py_ssize_t size = len(host)
    # The array's count, then the node, its host and port, the rack of Fetch, and no tags.
    cdef Py_ssize_t payload = (
        1 + 4 + size_of_uvarint(size + 1) + size + (4 + 1 if is_fetch else 2) + 1
    )
    cdef uint8_t *data = <uint8_t *>PyMem_Malloc(payload + 16)
    cdef uint8_t *p
    if data == NULL:
        raise MemoryError
    try:
        p = put_i8(put_i8(data, 1), 0)
        p = put_uvarint(p, payload)
        p = put_i8(p, 2)
        p = put_i32(p, node)
        p = put_uvarint(p, size + 1)
        p = put_raw(p, <const char *>host, size)
        if is_fetch:
            p = put_i8(put_i32(p, port), 0)
        else:
            p = put_i16(p, <int16_t>port)
        p = put_i8(p, 0)
        return PyBytes_FromStringAndSize(<const char *>data, p - data)
    finally:
        PyMem_Free(data)
