"""Partitions in the requests of controllers of the ZooKeeper era, and the answers of brokers.

A request for 50,000 partitions is a dict of named tuples here and a few megabytes there;
``kraft.zookeeper.controller_rpcs`` writes and reads what follows the partitions, and passes the
types of the tuples, which are its own.

    request   int32 controller id | int32 controller epoch | [ partition ] | …
    partition string topic | int32 partition | int32 controller epoch | int32 leader
              | int32 leader epoch | [ int32 ISR ] | int32 znode's version | [ int32 replica ]
              | what the layout adds
    answer    int16 error | [ string topic | int32 partition | int16 error ]

    string    int16 size | bytes
    […]       int32 count | elements

Layout `PLAIN` (0.8) adds nothing, `NEW_REPLICAS` (LeaderAndIsr 1) one byte: whether the replica is
new, `OFFLINE_REPLICAS` (UpdateMetadata 4) an array of offline replicas. Source:
``LeaderAndIsrRequest``, ``UpdateMetadataRequest`` of Kafka 0.8.2.2 and 1.1.1.

Invariant: every length and count is compared with the bytes left before memory is allocated.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, uint8_t
from libc.string cimport memcmp

from kraft._core.bytes.wire cimport Writer
from kraft._core.codec.fetch cimport fail, open_cursor
from kraft._core.codec.rpc_cursor cimport (
    Cursor, Span, put_i8, put_i16, put_i32, take, take_i16, take_i32,
)

from kraft.errors import CorruptRecordError

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t size)
    void PyTuple_SET_ITEM(object owner, Py_ssize_t index, object item)
    PyObject *PyTuple_GET_ITEM(object owner, Py_ssize_t index)
    Py_ssize_t PyTuple_GET_SIZE(object owner)

PLAIN, NEW_REPLICAS, OFFLINE_REPLICAS = range(3)

cdef enum:
    _PLAIN
    _NEW_REPLICAS
    _OFFLINE_REPLICAS
    # topic, partition, controller epoch, leader, leader epoch, ISR, version, replicas
    SMALLEST_PARTITION = 2 + 4 * 7
    SMALLEST_RESULT = 2 + 4 + 2


cdef inline int let_others_run(Py_ssize_t done) except -1:
    """Give other threads the interpreter lock now and then: sessions of ZooKeeper must not end."""
    if done % 1024 == 1023:
        with nogil:
            pass
    return 0


cdef inline int set_item(object owner, Py_ssize_t index, object item) except -1:
    Py_INCREF(item)
    PyTuple_SET_ITEM(owner, index, item)
    return 0


cdef inline object new_tuple(object type, Py_ssize_t size):
    """Return an instance of a named tuple's class, to be filled at once."""
    return PyType_GenericAlloc(<PyTypeObject *>type, size)


cdef int check_named_tuple(object type) except -1:
    if not (isinstance(type, _TYPE) and issubclass(type, tuple) and type.__itemsize__):
        raise TypeError(f"{type} is no class of named tuples")
    return 0


cdef object _TYPE = type


cdef inline Py_ssize_t take_count(Cursor *c, Py_ssize_t least) noexcept nogil:
    """Read a count of items of at least `least` bytes."""
    cdef const uint8_t *begin = c.at
    cdef Py_ssize_t count = take_i32(c)
    if c.bad:
        return 0
    if count < 0 or count > (c.end - c.at) // least:
        c.at = begin
        c.bad = True
        return 0
    return count


cdef inline Span take_text(Cursor *c) noexcept nogil:
    cdef const uint8_t *begin = c.at
    cdef Span span
    span.size = take_i16(c)
    span.data = c.at
    if c.bad or span.size < 0 or span.size > c.end - c.at:
        c.at = begin
        c.bad = True
        span.size = 0
        return span
    c.at += span.size
    return span


cdef object take_integers(Cursor *c, dict known):
    """Return an array as a tuple, the same one for equal arrays of a request.

    Many partitions share few arrays, and each tuple costs the garbage collector time.
    """
    cdef Py_ssize_t i, count = take_count(c, 4)
    data = PyBytes_FromStringAndSize(<const char *>c.at, 4 * count)
    found = known.get(data)
    if found is not None:
        c.at += 4 * count
        return found
    found = PyTuple_New(count)
    for i in range(count):
        set_item(found, i, take_i32(c))
    known[data] = found
    return found


cdef class _TopicTexts:
    """The text of a topic: partitions of one topic follow each other."""
    cdef Span last
    cdef str text

    cdef str of(self, Cursor *c, Span span):
        if (
            self.text is None or span.size != self.last.size
            or memcmp(span.data, self.last.data, span.size)
        ):
            try:
                self.text = PyUnicode_DecodeUTF8(<const char *>span.data, span.size, NULL)
            except UnicodeDecodeError as error:
                raise CorruptRecordError(
                    "a topic is not UTF-8", position=span.data - c.start + error.start
                ) from None
            self.last = span
        return self.text


def decode_updates(body, int layout, update_type, leadership_type):
    cdef Py_buffer view
    cdef Cursor c
    cdef int32_t controller_id, controller_epoch, epoch
    cdef Py_ssize_t i, count
    cdef _TopicTexts topics = _TopicTexts()
    cdef dict updates = {}, arrays = {}
    check_named_tuple(update_type)
    check_named_tuple(leadership_type)
    open_cursor(body, 0, &view, &c)
    try:
        controller_id = take_i32(&c)
        controller_epoch = take_i32(&c)
        count = take_count(&c, SMALLEST_PARTITION)
        for i in range(count):
            let_others_run(i)
            topic = topics.of(&c, take_text(&c))
            partition = take_i32(&c)
            leadership = new_tuple(leadership_type, 5)
            epoch = take_i32(&c)
            set_item(leadership, 0, take_i32(&c))
            set_item(leadership, 1, take_i32(&c))
            set_item(leadership, 2, take_integers(&c, arrays))
            set_item(leadership, 3, epoch)
            set_item(leadership, 4, take_i32(&c))
            update = new_tuple(update_type, 4)
            set_item(update, 0, leadership)
            set_item(update, 1, take_integers(&c, arrays))
            set_item(update, 2, layout == _NEW_REPLICAS and take(&c, 1)[0] != 0)
            set_item(update, 3, take_integers(&c, arrays) if layout == _OFFLINE_REPLICAS else ())
            if c.bad:
                break
            updates[(topic, partition)] = update
        if c.bad:
            fail(&c, "a controller's request")
        return controller_id, controller_epoch, updates, c.at - c.start
    finally:
        PyBuffer_Release(&view)


cdef inline object item(object owner, Py_ssize_t index):
    """Return an item of a tuple, named or not."""
    if not isinstance(owner, tuple) or index >= PyTuple_GET_SIZE(owner):
        raise TypeError(f"{owner!r} has no item {index}")
    return <object>PyTuple_GET_ITEM(owner, index)


cdef inline int32_t number(object owner, Py_ssize_t index) except? -1:
    return item(owner, index)


cdef int put_integers(Writer out, tuple values) except -1:
    cdef Py_ssize_t i, count = len(values)
    cdef uint8_t *p = put_i32(out.reserve(4 * (count + 1)), <int32_t>count)
    for i in range(count):
        p = put_i32(p, values[i])
    return 0


def encode_updates(
    int32_t controller_id, int32_t controller_epoch, dict updates, int layout
):
    cdef Writer out = Writer(64 * len(updates) + 64)
    cdef Py_ssize_t done = 0
    cdef uint8_t *p = put_i32(put_i32(out.reserve(12), controller_id), controller_epoch)
    put_i32(p, <int32_t>len(updates))
    for key, update in updates.items():
        let_others_run(done)
        done += 1
        leadership = item(update, 0)
        out.put_string(item(key, 0), False)
        p = put_i32(out.reserve(16), number(key, 1))
        p = put_i32(p, number(leadership, 3))
        p = put_i32(p, number(leadership, 0))
        put_i32(p, number(leadership, 1))
        put_integers(out, item(leadership, 2))
        put_i32(out.reserve(4), number(leadership, 4))
        put_integers(out, item(update, 1))
        if layout == _NEW_REPLICAS:
            put_i8(out.reserve(1), 1 if item(update, 2) else 0)
        elif layout == _OFFLINE_REPLICAS:
            put_integers(out, item(update, 3))
    return out.getvalue()


def decode_results(body):
    cdef Py_buffer view
    cdef Cursor c
    cdef int16_t error
    cdef Py_ssize_t i, count
    cdef _TopicTexts topics = _TopicTexts()
    cdef dict results = {}
    open_cursor(body, 0, &view, &c)
    try:
        error = take_i16(&c)
        count = take_count(&c, SMALLEST_RESULT)
        for i in range(count):
            let_others_run(i)
            topic = topics.of(&c, take_text(&c))
            partition = take_i32(&c)
            code = take_i16(&c)
            if c.bad:
                break
            results[(topic, partition)] = code
        if c.bad or c.at != c.end:
            fail(&c, "a broker's answer")
        return error, results
    finally:
        PyBuffer_Release(&view)


def encode_results(int16_t error, dict results):
    cdef Writer out = Writer(32 * len(results) + 16)
    put_i32(put_i16(out.reserve(6), error), <int32_t>len(results))
    for key, code in results.items():
        out.put_string(item(key, 0), False)
        put_i16(put_i32(out.reserve(6), number(key, 1)), code)
    return out.getvalue()


cdef inline bint is_out_of_sync(object update) except -1:
    return len(<tuple>item(item(update, 0), 2)) < len(<tuple>item(update, 1))


def apply_metadata(dict metadata, dict updates, object leader_counts, int32_t deleted):
    cdef Py_ssize_t out_of_sync = 0, done = 0
    # The counts may be a Counter, which costs more than a dict.
    cdef dict changes = {}
    for key, update in updates.items():
        let_others_run(done)
        done += 1
        leader = item(item(update, 0), 0)
        old = metadata.get(key)
        if old is not None:
            before = item(item(old, 0), 0)
            changes[before] = changes.get(before, 0) - 1
            out_of_sync -= is_out_of_sync(old)
        if leader == deleted:
            metadata.pop(key, None)
        else:
            metadata[key] = update
            changes[leader] = changes.get(leader, 0) + 1
            out_of_sync += is_out_of_sync(update)
    for leader, change in changes.items():
        leader_counts[leader] = leader_counts.get(leader, 0) + change
    return out_of_sync
