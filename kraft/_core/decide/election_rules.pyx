"""Kafka's rules for the change of one partition: its leader, ISR, ELR and directories.

``ElectionRules`` holds the decision (Kafka's ``PartitionChangeBuilder``) and its inputs beside the
partition: a hash map of the registered brokers and, for each interned directory, the broker that
has it online, so that "may this replica lead" takes two look-ups. Building it costs the number of
brokers and directories; a caller that keeps one passes on the changes.

``election`` applies the rules to many rows. Rules as of 4.3.1; the slow reference implementation is
``tests/reference/election_twin.py``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.string cimport memcpy, memset

import numpy as np

from kraft._core.bytes.arena cimport arena_release, arena_reserve
from kraft._core.table.columns cimport IRREGULAR
from kraft._core.codec.partition_codec cimport (
    CHANGE_ADDING, CHANGE_DIRECTORIES, CHANGE_ELR, CHANGE_ISR, CHANGE_LAST_KNOWN_ELR,
    CHANGE_LEADER, CHANGE_RECOVERY, CHANGE_REMOVING, CHANGE_REPLICAS, DIRECTORY_LOST,
    DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, MAX_REPLICAS, NO_LEADER, NO_LEADER_CHANGE,
    RECOVERING,
)
from kraft._core.bytes.wire cimport likely

from kraft.errors import InvalidRequestError, UnsupportedVersionError

cdef enum:
    NO_OWNER = -1
    SEVERAL_OWNERS = -2


cdef void copy_state(const PartitionState *source, PartitionState *target) noexcept nogil:
    target.leader = source.leader
    target.leader_epoch = source.leader_epoch
    target.partition_epoch = source.partition_epoch
    target.leader_recovery_state = source.leader_recovery_state
    target.replica_count = copy_list(source.replicas, source.replica_count, target.replicas)
    copy_list(
        <const int32_t *>source.directories, source.replica_count, <int32_t *>target.directories
    )
    target.isr_count = copy_list(source.isr, source.isr_count, target.isr)
    target.elr_count = copy_list(source.elr, source.elr_count, target.elr)
    target.last_known_elr_count = copy_list(
        source.last_known_elr, source.last_known_elr_count, target.last_known_elr
    )
    target.removing_count = copy_list(source.removing, source.removing_count, target.removing)
    target.adding_count = copy_list(source.adding, source.adding_count, target.adding)


cdef inline uint32_t bucket_of(int32_t member, uint32_t capacity) noexcept nogil:
    cdef uint32_t bits = <uint32_t>member
    return (bits ^ (bits >> 16)) & (capacity - 1)


cdef void order_as_hash_set(
    int32_t *members, int32_t count, int32_t initial_count
) noexcept nogil:
    """Sort distinct members, given in the order of insertion, as a java.util.HashSet iterates.

    Kafka writes an ELR in this order. The set was created from the first `initial_count` members,
    then the rest was added. Does not handle a bucket that became a tree: that needs nine brokers
    whose ids are equal modulo 64.
    """
    cdef uint32_t capacity = 16
    cdef int32_t index, other, in_bucket, place, member
    cdef int32_t wanted = <int32_t>(<float>initial_count / <float>0.75) + 1
    while capacity < <uint32_t>wanted:
        capacity *= 2
    for index in range(count):
        in_bucket = 0
        for other in range(index):
            if bucket_of(members[other], capacity) == bucket_of(members[index], capacity):
                in_bucket += 1
        if in_bucket >= 8 and capacity < 64:
            capacity *= 2
        if index + 1 > <int32_t>(capacity * 3 // 4):
            capacity *= 2
    # A stable sort by bucket, because a bucket keeps the order of insertion.
    for index in range(1, count):
        member = members[index]
        place = index
        while place > 0 and bucket_of(members[place - 1], capacity) > bucket_of(member, capacity):
            members[place] = members[place - 1]
            place -= 1
        members[place] = member


cdef bint complete_reassignment(PartitionState *target) noexcept nogil:
    """Complete a reassignment if it can be (PartitionReassignmentReplicas); return whether it was.

    All added replicas must be in sync, and if it removes more than it adds, all remaining ones.
    """
    cdef int32_t isr[MAX_REPLICAS]
    cdef int32_t replicas[MAX_REPLICAS]
    cdef int32_t isr_count, replica_count
    if target.removing_count == 0 and target.adding_count == 0:
        return False
    isr_count = copy_without(
        target.isr, target.isr_count, target.removing, target.removing_count, isr
    )
    replica_count = copy_without(
        target.replicas, target.replica_count, target.removing, target.removing_count, replicas
    )
    if target.removing_count and (isr_count == 0 or replica_count == 0):
        return False
    if not contains_all(isr, isr_count, target.adding, target.adding_count):
        return False
    if target.adding_count < target.removing_count and not contains_all(
        isr, isr_count, replicas, replica_count
    ):
        return False
    target.isr_count = copy_list(isr, isr_count, target.isr)
    target.replica_count = copy_list(replicas, replica_count, target.replicas)
    target.removing_count = 0
    target.adding_count = 0
    return True


cdef class ElectionRules:
    """The rules and their inputs; ``election.pyi`` describes the arguments."""

    def __cinit__(self, PartitionTable table not None, brokers, *, int metadata_version,
                  bint is_elr_enabled=False, int32_t min_isr=1, bint unclean=False,
                  dict topic_min_isr=None, dict topic_unclean=None):
        if metadata_version < 1:
            raise UnsupportedVersionError(f"there is no metadata.version {metadata_version}")
        self.table = table
        self.metadata_version = metadata_version
        self.is_elr_enabled = is_elr_enabled
        self.change_version = 0
        if metadata_version >= LEVEL_ELR:
            self.change_version = 2
        elif metadata_version >= LEVEL_DIRECTORIES:
            self.change_version = 1
        self.known_topic = -1
        self.default_min_isr = min_isr
        self.default_unclean = unclean
        self.numbering = table.topics
        for topic, value in (topic_min_isr or {}).items():
            self.set_topic_min_isr(topic, value)
        for topic, allowed in (topic_unclean or {}).items():
            self.set_topic_unclean(topic, allowed)
        self.take_brokers(brokers)

    def __dealloc__(self):
        arena_release(&self.broker_slots)
        arena_release(&self.directory_owners)
        arena_release(&self.shared_directories)
        arena_release(&self.directory_bytes)
        arena_release(&self.topic_min_isr)
        arena_release(&self.topic_unclean)

    # -- kept up to date

    def set_defaults(self, int32_t min_isr, bint unclean):
        self.default_min_isr = min_isr
        self.default_unclean = unclean

    def set_topic_min_isr(self, int64_t topic, value):
        cdef int64_t known = <int64_t>(self.topic_min_isr.size // 4)
        cdef int64_t place
        if topic < 0 or (topic >= known and value is None):
            return
        if topic >= known:
            if arena_reserve(&self.topic_min_isr, 4 * <size_t>(topic + 1 - known)) < 0:
                raise MemoryError("no memory for the topics' min.insync.replicas")
            self.topic_min_isr.size = 4 * <size_t>(topic + 1)
            for place in range(known, topic):
                (<int32_t *>self.topic_min_isr.data)[place] = NOT_SET
        (<int32_t *>self.topic_min_isr.data)[topic] = NOT_SET if value is None else value

    def set_topic_unclean(self, int64_t topic, value):
        cdef int64_t known = <int64_t>self.topic_unclean.size
        cdef int64_t place
        if topic < 0 or (topic >= known and value is None):
            return
        if topic >= known:
            if arena_reserve(&self.topic_unclean, <size_t>(topic + 1 - known)) < 0:
                raise MemoryError("no memory for the topics' unclean elections")
            self.topic_unclean.size = <size_t>(topic + 1)
            for place in range(known, topic):
                (<int8_t *>self.topic_unclean.data)[place] = NOT_SET
        (<int8_t *>self.topic_unclean.data)[topic] = NOT_SET if value is None else bool(value)

    @property
    def is_numbered(self):
        return self.numbering is self.table.topics

    @property
    def knows_directories(self):
        return self.directory_count == self.table.directories_seen.count

    def update_broker(self, broker):
        directories = self.log_dirs.get(broker.id)
        if directories is None:
            if not self.knows_directories:
                return False
            self.add_broker(broker)
            return True
        if directories != tuple(broker.log_dirs):
            return False
        self.fill_slot(self.find_broker(broker.id), broker)
        return True

    cdef int fill_slot(self, BrokerSlot *slot, object broker) except -1:
        slot.epoch = broker.epoch
        slot.active = not broker.fenced and not broker.in_controlled_shutdown
        slot.acceptable = slot.active
        return 0

    def take_brokers(self, brokers):
        """Rebuild the hash map of brokers and the owners of directories."""
        cdef int64_t known = self.table.directories_seen.count
        brokers = list(brokers)
        self._make_slots(len(brokers))
        self.broker_count = 0
        self.log_dirs = {}
        self.shared_directories.size = 0
        self.directory_owners.size = 0
        self.directory_bytes.size = 0
        self.directory_count = known
        if (
            arena_reserve(&self.directory_owners, 4 * <size_t>known) < 0
            or arena_reserve(&self.directory_bytes, 16 * <size_t>(known + len(brokers))) < 0
        ):
            raise MemoryError("no memory for the directories of the brokers")
        # Nothing is allocated for no directories, and memcpy takes no NULL.
        if known > 0:
            memset(self.directory_owners.data, 0xff, 4 * <size_t>known)
            memcpy(self.directory_bytes.data, self.table.directories_seen.keys.data,
                   16 * <size_t>known)
        self.directory_bytes.size = 16 * <size_t>known
        for broker in brokers:
            self.add_broker(broker)

    cdef int add_broker(self, object broker) except -1:
        """Add a registered broker and its directories. The table has no new directories since
        `take_brokers`.
        """
        cdef int64_t number
        cdef BrokerSlot *slot
        cdef DirectoryOwner *shared
        cdef int32_t *owners = <int32_t *>self.directory_owners.data
        cdef tuple directories = tuple(broker.log_dirs)
        for directory in directories:
            if not PyBytes_Check(directory) or PyBytes_GET_SIZE(directory) != 16:
                raise InvalidRequestError("a directory id is 16 bytes")
        if (
            arena_reserve(&self.directory_bytes, 16) < 0
            # Each directory adds its first owner and this one at most.
            or arena_reserve(
                &self.shared_directories, 2 * len(directories) * sizeof(DirectoryOwner)
            ) < 0
        ):
            raise MemoryError("no memory for the directories of the brokers")
        slot = self.intern_broker(broker.id)
        self.fill_slot(slot, broker)
        self.log_dirs[slot.id] = directories
        slot.tells_directories = len(directories) > 0
        slot.default_directory = DIRECTORY_UNASSIGNED
        if not directories:
            slot.default_directory = DIRECTORY_MIGRATING
        for directory in directories:
            number = self.table.directories_seen.find(
                <const uint8_t *>PyBytes_AS_STRING(directory)
            )
            if len(directories) == 1:
                slot.default_directory = <uint32_t>number
                if number < 0:
                    # New replicas may name a directory that no record has named yet.
                    slot.default_directory = <uint32_t>(self.directory_bytes.size // 16)
                    memcpy(self.directory_bytes.data + self.directory_bytes.size,
                           PyBytes_AS_STRING(directory), 16)
                    self.directory_bytes.size += 16
            if number < 0:
                continue
            if owners[number] == NO_OWNER:
                owners[number] = slot.id
                continue
            shared = <DirectoryOwner *>(
                self.shared_directories.data + self.shared_directories.size
            )
            if owners[number] != SEVERAL_OWNERS:
                shared[0].broker = owners[number]
                shared[0].directory = <uint32_t>number
                shared += 1
                self.shared_directories.size += sizeof(DirectoryOwner)
            shared[0].broker = slot.id
            shared[0].directory = <uint32_t>number
            self.shared_directories.size += sizeof(DirectoryOwner)
            owners[number] = SEVERAL_OWNERS
        return 0

    def _make_slots(self, int64_t count):
        cdef uint32_t capacity = 64
        while capacity < 2 * <uint64_t>count + 64:
            capacity *= 2
        arena_release(&self.broker_slots)
        if arena_reserve(&self.broker_slots, capacity * sizeof(BrokerSlot)) < 0:
            raise MemoryError("no memory for the brokers")
        memset(self.broker_slots.data, 0, capacity * sizeof(BrokerSlot))
        self.broker_slots.size = capacity * sizeof(BrokerSlot)
        self.broker_mask = capacity - 1

    # -- queries

    cdef BrokerSlot *find_broker(self, int32_t broker) noexcept nogil:
        """Return the broker's slot, or an empty one."""
        return slot_of(<BrokerSlot *>self.broker_slots.data, self.broker_mask, broker)

    cdef BrokerSlot *intern_broker(self, int32_t broker) except NULL:
        cdef BrokerSlot *slot = self.find_broker(broker)
        cdef Arena old
        cdef int64_t index
        if slot.is_set:
            return slot
        if 2 * <uint64_t>self.broker_count > self.broker_mask:
            old = self.broker_slots
            memset(&self.broker_slots, 0, sizeof(Arena))
            try:
                self._make_slots(self.broker_count)
            except MemoryError:
                self.broker_slots = old
                raise
            for index in range(<int64_t>(old.size // sizeof(BrokerSlot))):
                slot = (<BrokerSlot *>old.data) + index
                if slot.is_set:
                    self.find_broker(slot.id)[0] = slot[0]
            arena_release(&old)
            slot = self.find_broker(broker)
        slot.id = broker
        slot.is_set = True
        slot.epoch = -1
        slot.default_directory = DIRECTORY_UNASSIGNED
        self.broker_count += 1
        return slot

    cdef bint is_online(self, const BrokerSlot *broker, uint32_t directory) noexcept nogil:
        """Return whether the broker has this directory online (DirectoryId.isOnline)."""
        cdef int64_t index
        cdef const DirectoryOwner *shared
        cdef int32_t owner = NO_OWNER
        if directory == DIRECTORY_MIGRATING or directory == DIRECTORY_UNASSIGNED:
            return True
        if directory == DIRECTORY_LOST:
            return False
        if not broker.tells_directories:
            return True
        if directory < self.directory_count:
            owner = (<const int32_t *>self.directory_owners.data)[directory]
        if likely(owner != SEVERAL_OWNERS):
            return owner == broker.id and owner >= 0
        shared = <const DirectoryOwner *>self.shared_directories.data
        for index in range(<int64_t>(self.shared_directories.size // sizeof(DirectoryOwner))):
            if shared[index].broker == broker.id and shared[index].directory == directory:
                return True
        return False

    cdef bint may_lead(self, int32_t broker, const PartitionState *state) noexcept nogil:
        """Return whether the broker may lead now, and its replica's directory is online."""
        cdef const BrokerSlot *slot = self.find_broker(broker)
        cdef int32_t index
        if not slot.is_set or not slot.acceptable:
            return False
        for index in range(state.replica_count):
            if state.replicas[index] == broker:
                return self.is_online(slot, state.directories[index])
        return False

    cdef bint allows_unclean(self, int64_t topic) noexcept nogil:
        if (
            topic < <int64_t>self.topic_unclean.size
            and (<const int8_t *>self.topic_unclean.data)[topic] != NOT_SET
        ):
            return (<const int8_t *>self.topic_unclean.data)[topic]
        return self.default_unclean

    cdef int32_t own_min_isr(self, int64_t topic) noexcept nogil:
        """Return the configured min.insync.replicas of the topic."""
        if (
            topic < <int64_t>(self.topic_min_isr.size // 4)
            and (<const int32_t *>self.topic_min_isr.data)[topic] != NOT_SET
        ):
            return (<const int32_t *>self.topic_min_isr.data)[topic]
        return self.default_min_isr

    cdef int32_t effective_min_isr(self, int64_t row, int32_t topic) noexcept nogil:
        """Return min.insync.replicas of the topic, at most its first partition's replica count."""
        cdef int64_t first
        cdef int32_t count = 0
        cdef const int32_t *replicas
        if topic == self.known_topic:
            return self.known_min_isr
        first = self.table.topics.row_of(topic, 0)
        if first < 0:
            first = row
        if self.table.isr[first] == IRREGULAR:
            count = (<int32_t **>self.table.blocks.data)[self.table.elr[first]][0]
        else:
            replicas = self.table.replicas + first * self.table.stride
            while count < self.table.stride and replicas[count] >= 0:
                count += 1
        self.known_min_isr = self.own_min_isr(topic)
        if self.known_min_isr > count:
            self.known_min_isr = count
        self.known_topic = topic
        return self.known_min_isr

    # -- inputs of a sweep over many outages

    def row_rules(self):
        """See ``election.pyi``."""
        cdef int64_t row, count = self.table.row_count
        cdef int32_t slot
        cdef PartitionState state
        cdef uint64_t[::1] candidates = np.zeros(count, np.uint64)
        cdef int32_t[::1] min_isr = np.zeros(count, np.int32)
        cdef uint8_t[::1] unclean = np.zeros(count, np.uint8)
        self.table.ensure_checked()
        self.known_topic = -1
        for row in range(count):
            if self.table.topic[row] < 0:
                continue
            self.table.load_row(row, &state)
            for slot in range(state.replica_count):
                if (
                    not contains(state.replicas, slot, state.replicas[slot])
                    and self.may_lead(state.replicas[slot], &state)
                ):
                    candidates[row] |= <uint64_t>1 << slot
            min_isr[row] = self.effective_min_isr(row, self.table.topic[row])
            unclean[row] = self.allows_unclean(self.table.topic[row])
        return np.asarray(candidates), np.asarray(min_isr), np.asarray(unclean)

    # -- the rules for one partition

    cdef void populate_elr(self, const PartitionState *before, PartitionState *after,
                           int32_t min_isr, int *refused) noexcept nogil:
        """Set the ELR: the replicas outside of the ISR that have all committed records."""
        cdef int32_t members[2 * MAX_REPLICAS]
        cdef int32_t index, count = 0, kept = 0
        if after.isr_count >= min_isr:
            after.elr_count = 0
            return
        for index in range(before.elr_count):
            if not contains(members, count, before.elr[index]):
                members[count] = before.elr[index]
                count += 1
        for index in range(before.isr_count):
            if not contains(members, count, before.isr[index]):
                members[count] = before.isr[index]
                count += 1
        order_as_hash_set(members, count, before.elr_count)
        for index in range(count):
            if contains(after.isr, after.isr_count, members[index]):
                continue
            if self.find_broker(members[index]).leaves_elr:
                continue
            if kept == MAX_REPLICAS:
                refused[0] = TOO_MANY_MEMBERS
                return
            after.elr[kept] = members[index]
            kept += 1
        after.elr_count = kept

    cdef int32_t elect(self, const PartitionState *before, const PartitionState *after,
                       int election, bint *unclean) noexcept nogil:
        """Return the new leader, or NO_LEADER; judge directories by those of `before`."""
        cdef const int32_t *electorate = <const int32_t *>&after.isr[0]
        cdef int32_t electorate_count = after.isr_count, slot, replica
        unclean[0] = False
        if after.isr_count == 0:
            electorate = <const int32_t *>&after.elr[0]
            electorate_count = after.elr_count
        if election == ELECT_PREFERRED and after.replica_count > 0:
            replica = after.replicas[0]
            if contains(electorate, electorate_count, replica) and self.may_lead(replica, before):
                return replica
        if (
            contains(electorate, electorate_count, before.leader)
            and self.may_lead(before.leader, before)
        ):
            return before.leader
        for slot in range(after.replica_count):
            replica = after.replicas[slot]
            if contains(electorate, electorate_count, replica) and self.may_lead(replica, before):
                return replica
        if (
            self.is_elr_enabled and after.elr_count == 0 and after.isr_count == 0
            and before.last_known_elr_count == 1
            and self.may_lead(before.last_known_elr[0], before)
        ):
            unclean[0] = True
            return before.last_known_elr[0]
        if election == ELECT_UNCLEAN:
            for slot in range(after.replica_count):
                if self.may_lead(after.replicas[slot], before):
                    unclean[0] = True
                    return after.replicas[slot]
        return NO_LEADER

    cdef void assign_directories(self, const PartitionState *before,
                                 PartitionState *after) noexcept nogil:
        """Keep the directory of each replica; give a new replica its broker's default."""
        cdef int32_t slot, place
        for slot in range(after.replica_count):
            after.directories[slot] = self.find_broker(after.replicas[slot]).default_directory
            if not self.find_broker(after.replicas[slot]).is_set:
                after.directories[slot] = DIRECTORY_UNASSIGNED
            for place in range(before.replica_count):
                if before.replicas[place] == after.replicas[slot]:
                    after.directories[slot] = before.directories[place]

    cdef int decide(self, const PartitionState *before, PartitionState *after,
                    PartitionChange *change, int election, int32_t min_isr,
                    int32_t recovery) noexcept nogil:
        """Decide the change from `before` to the targets in `after`: 1 a change, 0 none, or a
        refusal.

        ISR, replicas, removing, adding and ELR of `after` are targets on entry; `recovery` is the
        target of the recovery state. On return they are the values of the record, in the fields
        that `change` sets.
        """
        cdef uint32_t fields = 0
        cdef int32_t leader
        cdef bint unclean = False, has_bumped
        cdef int refused = 0
        change.leader = NO_LEADER_CHANGE
        change.leader_recovery_state = -1
        complete_reassignment(after)
        if self.is_elr_enabled:
            self.populate_elr(before, after, min_isr, &refused)
            if refused < 0:
                return refused
        leader = self.elect(before, after, election, &unclean)
        if leader != before.leader:
            if contains(after.elr, after.elr_count, leader):
                after.isr[0] = leader
                after.isr_count = 1
                after.elr_count = copy_without(
                    after.elr, after.elr_count, &leader, 1, after.elr
                )
            change.leader = leader
            fields |= CHANGE_LEADER
            if unclean:
                fields |= CHANGE_ISR
                after.isr[0] = leader
                after.isr_count = 1
                if before.leader_recovery_state != RECOVERING:
                    change.leader_recovery_state = RECOVERING
                    fields |= CHANGE_RECOVERY
        elif not contains_all(
            after.replicas, after.replica_count, before.replicas, before.replica_count
        ):
            # A removed replica must stop following: bump the leader epoch, keep the leader.
            change.leader = before.leader
            fields |= CHANGE_LEADER
        has_bumped = (fields & CHANGE_LEADER) != 0
        if fields & CHANGE_ISR or not self.is_elr_enabled:
            after.elr_count = 0
        if not same_list(after.elr, after.elr_count, before.elr, before.elr_count):
            fields |= CHANGE_ELR
        if (
            not fields & CHANGE_ISR and (after.isr_count or self.is_elr_enabled)
            and not same_list(after.isr, after.isr_count, before.isr, before.isr_count)
        ):
            fields |= CHANGE_ISR
        if (
            self.metadata_version < LEVEL_NO_EPOCH_ON_SHRINK and not has_bumped
            and fields & CHANGE_ISR
            and not contains_all(after.isr, after.isr_count, before.isr, before.isr_count)
        ):
            change.leader = before.leader
            fields |= CHANGE_LEADER
        if self.is_elr_enabled and fields & CHANGE_LEADER:
            if change.leader == NO_LEADER and before.last_known_elr_count == 0:
                after.last_known_elr[0] = before.leader
                after.last_known_elr_count = 1
                fields |= CHANGE_LAST_KNOWN_ELR
            elif change.leader >= 0 and before.last_known_elr_count > 0:
                after.last_known_elr_count = 0
                fields |= CHANGE_LAST_KNOWN_ELR
        if after.replica_count:
            self.assign_directories(before, after)
            if self.metadata_version >= LEVEL_DIRECTORIES and not same_list(
                <const int32_t *>after.directories, after.replica_count,
                <const int32_t *>before.directories, before.replica_count,
            ):
                fields |= CHANGE_DIRECTORIES
            if not same_list(
                after.replicas, after.replica_count, before.replicas, before.replica_count
            ):
                fields |= CHANGE_REPLICAS
        if not same_list(
            after.removing, after.removing_count, before.removing, before.removing_count
        ):
            fields |= CHANGE_REMOVING
        if not same_list(after.adding, after.adding_count, before.adding, before.adding_count):
            fields |= CHANGE_ADDING
        if recovery != before.leader_recovery_state:
            change.leader_recovery_state = recovery
            fields |= CHANGE_RECOVERY
        if self.change_version < 2:
            # Records of these versions have no ELR, so no partition has one.
            fields &= ~<uint32_t>(CHANGE_ELR | CHANGE_LAST_KNOWN_ELR)
        change.fields = fields
        return 1 if fields else 0
