# Kafka's rules for the change of one partition; see election_rules.pyx.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraft._core.bytes.arena cimport Arena
from kraft._core.codec.partition_codec cimport PartitionChange, PartitionState
from kraft._core.table.table cimport PartitionTable


cdef enum Election:
    ELECT_ONLINE = 0
    ELECT_UNCLEAN = 1
    ELECT_PREFERRED = 2

# The first metadata.version at which a shrinking ISR needs no new leader epoch, at which records
# name directories, and at which they have ELRs.
cdef enum:
    LEVEL_NO_EPOCH_ON_SHRINK = 12
    LEVEL_DIRECTORIES = 17
    LEVEL_ELR = 23

cdef enum:
    NOT_SET = -128

# Why a decision failed.
cdef enum ElectionRefusal:
    BUILDER_FAILED = -1
    TOO_MANY_MEMBERS = -2
    OUT_OF_MEMORY = -3


# A registered broker, or one that the current operation names.
cdef struct BrokerSlot:
    int64_t epoch               # -1: not registered
    int32_t id
    uint32_t default_directory  # the directory of a new replica
    uint8_t is_set
    uint8_t active              # registered, not fenced, not in controlled shutdown
    uint8_t acceptable          # may lead in the current operation
    uint8_t leaves_isr          # in the current operation
    uint8_t leaves_elr          # likewise: its shutdown was unclean
    uint8_t tells_directories   # its registration lists directories


cdef struct DirectoryOwner:
    int32_t broker
    uint32_t directory


cdef class ElectionRules:
    cdef readonly PartitionTable table
    cdef readonly int metadata_version
    cdef readonly bint is_elr_enabled
    cdef int32_t change_version
    cdef Arena broker_slots         # BrokerSlot, a power of two of them
    cdef uint32_t broker_mask
    cdef int64_t broker_count
    cdef Arena directory_owners     # int32 a directory: its broker, NO_OWNER or SEVERAL_OWNERS
    cdef int64_t directory_count
    cdef Arena shared_directories   # DirectoryOwner: directories that several brokers register
    cdef Arena directory_bytes      # 16 bytes for each number: the table's, then new ones
    cdef int32_t default_min_isr
    cdef bint default_unclean
    # The overrides of topics, by topic number; numbers after the end have none.
    cdef Arena topic_min_isr        # int32, NOT_SET: no override
    cdef Arena topic_unclean        # int8, likewise
    cdef dict log_dirs              # the directories of each registered broker, by its id
    cdef object numbering           # the TopicTable with the topic numbers of the overrides
    cdef int32_t known_topic        # the topic of the cached effective min ISR
    cdef int32_t known_min_isr

    cdef BrokerSlot *find_broker(self, int32_t broker) noexcept nogil
    cdef BrokerSlot *intern_broker(self, int32_t broker) except NULL
    cdef bint is_online(self, const BrokerSlot *broker, uint32_t directory) noexcept nogil
    cdef bint may_lead(self, int32_t broker, const PartitionState *state) noexcept nogil
    cdef bint allows_unclean(self, int64_t topic) noexcept nogil
    cdef int32_t own_min_isr(self, int64_t topic) noexcept nogil
    cdef int fill_slot(self, BrokerSlot *slot, object broker) except -1
    cdef int add_broker(self, object broker) except -1
    cdef int32_t effective_min_isr(self, int64_t row, int32_t topic) noexcept nogil
    cdef int decide(self, const PartitionState *before, PartitionState *after,
                    PartitionChange *change, int election, int32_t min_isr,
                    int32_t recovery) noexcept nogil
    cdef void populate_elr(self, const PartitionState *before, PartitionState *after,
                           int32_t min_isr, int *refused) noexcept nogil
    cdef int32_t elect(self, const PartitionState *before, const PartitionState *after,
                       int election, bint *unclean) noexcept nogil
    cdef void assign_directories(self, const PartitionState *before,
                                 PartitionState *after) noexcept nogil


cdef inline BrokerSlot *slot_of(BrokerSlot *slots, uint32_t mask, int32_t broker) noexcept nogil:
    """Return the broker's slot, or an empty one. Inlined: `find_broker` is a call by a pointer."""
    cdef uint32_t place = (<uint32_t>broker * <uint32_t>0x9E3779B1) >> 7 & mask
    while slots[place].is_set and slots[place].id != broker:
        place = (place + 1) & mask
    return &slots[place]


cdef void order_as_hash_set(
    int32_t *members, int32_t count, int32_t initial_count
) noexcept nogil


cdef inline bint contains(const int32_t *members, int32_t count, int32_t member) noexcept nogil:
    cdef int32_t index
    for index in range(count):
        if members[index] == member:
            return True
    return False


cdef inline bint contains_all(
    const int32_t *members, int32_t count, const int32_t *wanted, int32_t wanted_count
) noexcept nogil:
    cdef int32_t index
    for index in range(wanted_count):
        if not contains(members, count, wanted[index]):
            return False
    return True


cdef inline bint same_list(
    const int32_t *left, int32_t left_count, const int32_t *right, int32_t right_count
) noexcept nogil:
    cdef int32_t index
    if left_count != right_count:
        return False
    for index in range(left_count):
        if left[index] != right[index]:
            return False
    return True


cdef inline int32_t copy_list(
    const int32_t *source, int32_t count, int32_t *target
) noexcept nogil:
    cdef int32_t index
    for index in range(count):
        target[index] = source[index]
    return count


cdef inline int32_t copy_without(
    const int32_t *source, int32_t count, const int32_t *dropped, int32_t dropped_count,
    int32_t *target,
) noexcept nogil:
    """Copy the members that are not dropped, in order; the target may be the source."""
    cdef int32_t index, kept = 0
    for index in range(count):
        if not contains(dropped, dropped_count, source[index]):
            target[kept] = source[index]
            kept += 1
    return kept


cdef void copy_state(const PartitionState *source, PartitionState *target) noexcept nogil
