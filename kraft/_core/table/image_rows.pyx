"""Arrays of an image's rows, in the order of the requested rows.

``kraft.image.states`` derives states from them, ``kraft.fleet`` the requests of its leaders. Costs
the requested rows, and the changes since the image was last read. Reads the images of `images`.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.table.images cimport TableImage
from kraft._core.codec.partition_codec cimport PartitionState

IN_ISR = 1
ADDING = 2


cdef bint had_row(TableImage image, int64_t row):
    """Return whether a row held a partition; call `catch_up` before."""
    cdef int64_t topic
    if not 0 <= row < image.rows_then:
        return False
    topic = image.table.topic[row]
    return image.had_topic(topic if topic >= 0 else -1 - topic)


def leaders_of(TableImage image not None, const int32_t[::1] rows not None):
    cdef int64_t index, count = rows.shape[0]
    cdef PartitionState state
    image.catch_up()
    there = np.zeros(count, np.bool_)
    leader = np.full(count, -1, np.int32)
    leader_epoch = np.full(count, -1, np.int32)
    cdef uint8_t[::1] there_out = there.view(np.uint8)
    cdef int32_t[::1] leader_out = leader, epoch_out = leader_epoch
    for index in range(count):
        if had_row(image, rows[index]):
            image.load_row(rows[index], &state)
            there_out[index] = 1
            leader_out[index] = state.leader
            epoch_out[index] = state.leader_epoch
    return there, leader, leader_epoch


def replicas_of(TableImage image not None, const int32_t[::1] rows not None):
    cdef int64_t index, slot, other, count = rows.shape[0], widest = 0
    cdef PartitionState state
    image.catch_up()
    for index in range(count):
        if had_row(image, rows[index]):
            image.load_row(rows[index], &state)
            widest = max(widest, <int64_t>state.replica_count)
    brokers = np.full((count, widest), -1, np.int32)
    directories = np.zeros((count, widest), np.int32)
    marks = np.zeros((count, widest), np.uint8)
    cdef int32_t[:, ::1] brokers_out = brokers, directories_out = directories
    cdef uint8_t[:, ::1] marks_out = marks
    for index in range(count):
        if not had_row(image, rows[index]):
            continue
        image.load_row(rows[index], &state)
        for slot in range(state.replica_count):
            brokers_out[index, slot] = state.replicas[slot]
            directories_out[index, slot] = <int32_t>state.directories[slot]
            for other in range(state.isr_count):
                if state.isr[other] == state.replicas[slot]:
                    marks_out[index, slot] |= 1
            for other in range(state.adding_count):
                if state.adding[other] == state.replicas[slot]:
                    marks_out[index, slot] |= 2
    return brokers, directories, marks


def isrs_of(TableImage image not None, const int32_t[::1] rows not None):
    cdef int64_t index, slot, count = rows.shape[0], widest = 0
    cdef PartitionState state
    image.catch_up()
    for index in range(count):
        if had_row(image, rows[index]):
            image.load_row(rows[index], &state)
            widest = max(widest, <int64_t>state.isr_count)
    partition_epoch = np.full(count, -1, np.int32)
    isrs = np.full((count, widest), -1, np.int32)
    cdef int32_t[::1] epoch_out = partition_epoch
    cdef int32_t[:, ::1] isrs_out = isrs
    for index in range(count):
        if not had_row(image, rows[index]):
            continue
        image.load_row(rows[index], &state)
        epoch_out[index] = state.partition_epoch
        for slot in range(state.isr_count):
            isrs_out[index, slot] = state.isr[slot]
    return partition_epoch, isrs


def places_of(TableImage image not None, const int32_t[::1] rows not None):
    cdef int64_t index, topic, count = rows.shape[0]
    image.catch_up()
    topics = np.full(count, -1, np.int32)
    partitions = np.full(count, -1, np.int32)
    cdef int32_t[::1] topics_out = topics, partitions_out = partitions
    for index in range(count):
        if had_row(image, rows[index]):
            topic = image.table.topic[rows[index]]
            topics_out[index] = <int32_t>(topic if topic >= 0 else -1 - topic)
            partitions_out[index] = image.table.partition[rows[index]]
    return topics, partitions
