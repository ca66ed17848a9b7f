# C structs of a partition, and parsers and emitters of the four records that a cluster has millions
# of.
#
# All four are flexible messages after three bytes of framing (frame version 1, api key, record
# version):
#
#   Topic (2)            name compact string | topicId uuid | tags
#   Partition (3)        partitionId i32 | topicId uuid | replicas [i32] | isr [i32]
#                        | removingReplicas [i32] | addingReplicas [i32] | leader i32
#                        | leaderEpoch i32 | partitionEpoch i32 | directories [uuid] (v1+)
#                        | tags: 0 leaderRecoveryState i8, 1 elr [i32] (v2+), 2 lastKnownElr (v2+)
#   PartitionChange (5)  partitionId i32 | topicId uuid | tags: 0 isr, 1 leader i32, 2 replicas,
#                        3 removingReplicas, 4 addingReplicas, 5 leaderRecoveryState i8,
#                        6 elr (v2+), 7 lastKnownElr (v2+), 8 directories (v1+)
#   RemoveTopic (9)      topicId uuid | tags
#
# A parsed record is a *view*: counts, and pointers into the checked bytes. Source of the layouts:
# the schemas under common/metadata in kafka-metadata-4.3.1.jar.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraft._core.bytes.wire cimport (
    get_uvarint, load_u32, put_uvarint, size_of_uvarint, store_u32,
)

cdef enum:
    # A replica list during a reassignment has the target and the replicas to remove: twice the
    # largest factor of 32.
    MAX_REPLICAS = 64

cdef enum RecordKey:
    TOPIC_KEY = 2
    PARTITION_KEY = 3
    PARTITION_CHANGE_KEY = 5
    REMOVE_TOPIC_KEY = 9
    NO_OP_KEY = 20

cdef enum ChangeField:
    # The tag numbers of PartitionChange, as bits of a mask.
    CHANGE_ISR = 1 << 0
    CHANGE_LEADER = 1 << 1
    CHANGE_REPLICAS = 1 << 2
    CHANGE_REMOVING = 1 << 3
    CHANGE_ADDING = 1 << 4
    CHANGE_RECOVERY = 1 << 5
    CHANGE_ELR = 1 << 6
    CHANGE_LAST_KNOWN_ELR = 1 << 7
    CHANGE_DIRECTORIES = 1 << 8

cdef enum DirectoryIndex:
    # The reserved directory ids have fixed interned numbers (server-common DirectoryId).
    DIRECTORY_MIGRATING = 0
    DIRECTORY_UNASSIGNED = 1
    DIRECTORY_LOST = 2

cdef enum:
    NO_LEADER = -1
    NO_LEADER_CHANGE = -2
    RECOVERED = 0
    RECOVERING = 1

# Why a record was rejected; `partition_codec.reason_text` returns the sentence.
cdef enum CodecReason:
    CODEC_OK = 0
    CODEC_MALFORMED = -1
    CODEC_TOO_MANY_REPLICAS = -2
    CODEC_UNSUPPORTED_VERSION = -3
    CODEC_DIRECTORY_COUNT = -4
    CODEC_TAG_VERSION = -5


# One partition with its lists. Only the first `*_count` entries of a list are set; directories are
# interned numbers, one for each replica.
cdef struct PartitionState:
    int32_t leader
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t leader_recovery_state
    int32_t replica_count
    int32_t isr_count
    int32_t elr_count
    int32_t last_known_elr_count
    int32_t removing_count
    int32_t adding_count
    int32_t replicas[MAX_REPLICAS]
    uint32_t directories[MAX_REPLICAS]
    int32_t isr[MAX_REPLICAS]
    int32_t elr[MAX_REPLICAS]
    int32_t last_known_elr[MAX_REPLICAS]
    int32_t removing[MAX_REPLICAS]
    int32_t adding[MAX_REPLICAS]


# The content of one PartitionChange record: its fields (bits of ChangeField), the leader
# (NO_LEADER_CHANGE if absent) and the recovery state (-1 if absent). The values of the lists are
# those of the state after the change.
cdef struct PartitionChange:
    uint32_t fields
    int32_t leader
    int32_t leader_recovery_state


# An array of i32 (or of uuids) in the record's bytes: `count` is -1 for null.
cdef struct ArrayView:
    const uint8_t *items
    int32_t count


cdef struct PartitionView:
    int32_t version
    int32_t partition_id
    const uint8_t *topic_id
    ArrayView replicas
    ArrayView isr
    ArrayView removing
    ArrayView adding
    int32_t leader
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t leader_recovery_state
    ArrayView directories
    ArrayView elr
    ArrayView last_known_elr


cdef struct ChangeView:
    int32_t version
    int32_t partition_id
    const uint8_t *topic_id
    uint32_t fields
    ArrayView isr
    int32_t leader
    ArrayView replicas
    ArrayView removing
    ArrayView adding
    int32_t leader_recovery_state
    ArrayView elr
    ArrayView last_known_elr
    ArrayView directories


cdef inline const uint8_t *get_array(
    const uint8_t *p, const uint8_t *end, int32_t item_size, ArrayView *out
) noexcept nogil:
    """Read a compact array of fixed-size items; the count is compared with the bytes left."""
    cdef uint32_t raw = 0
    p = get_uvarint(p, end, &raw)
    if p == NULL:
        return NULL
    if raw == 0:
        out.count = -1
        out.items = NULL
        return p
    raw -= 1
    if <uint64_t>raw * <uint64_t>item_size > <uint64_t>(end - p):
        return NULL
    out.count = <int32_t>raw
    out.items = p
    return p + <int64_t>raw * item_size


cdef inline const uint8_t *skip_tags(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Skip a tagged section of unknown tags only. A tag is a non-negative i32."""
    cdef uint32_t count = 0, tag = 0, size = 0, _index
    cdef int32_t last = -1
    p = get_uvarint(p, end, &count)
    for _index in range(count):
        p = get_uvarint(p, end, &tag)
        p = get_uvarint(p, end, &size)
        if p == NULL or <int32_t>tag <= last or <uint64_t>size > <uint64_t>(end - p):
            return NULL
        last = <int32_t>tag
        p += size
    return p


cdef int parse_partition(
    const uint8_t *p, const uint8_t *end, int32_t version, PartitionView *out
) noexcept nogil

cdef int parse_change(
    const uint8_t *p, const uint8_t *end, int32_t version, ChangeView *out
) noexcept nogil

cdef int parse_topic(
    const uint8_t *p, const uint8_t *end, const uint8_t **name, int32_t *name_size,
    const uint8_t **topic_id,
) noexcept nogil

cdef int parse_remove_topic(
    const uint8_t *p, const uint8_t *end, const uint8_t **topic_id
) noexcept nogil

# Emitters: the caller asks for the size first, then provides exactly that many bytes.
# `directory_ids` has 16 bytes for each interned number. A Partition record has the ELR lists if
# they are not empty (version 2).
cdef int32_t size_of_partition(const PartitionState *state, int32_t version) noexcept nogil

cdef uint8_t *put_partition(
    uint8_t *p, const PartitionState *state, int32_t partition_id, const uint8_t *topic_id,
    int32_t version, const uint8_t *directory_ids,
) noexcept nogil

cdef int32_t size_of_change(
    const PartitionState *after, const PartitionChange *change
) noexcept nogil

cdef uint8_t *put_change(
    uint8_t *p, const PartitionState *after, const PartitionChange *change, int32_t partition_id,
    const uint8_t *topic_id, int32_t version, const uint8_t *directory_ids,
) noexcept nogil

cdef int32_t size_of_topic(int32_t name_size) noexcept nogil

cdef uint8_t *put_topic(
    uint8_t *p, const uint8_t *name, int32_t name_size, const uint8_t *topic_id
) noexcept nogil

cdef enum:
    SIZE_OF_REMOVE_TOPIC = 3 + 16 + 1

cdef uint8_t *put_remove_topic(uint8_t *p, const uint8_t *topic_id) noexcept nogil
