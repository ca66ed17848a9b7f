"""The faults that `make core-mutants` plants into the core, and the tests that must detect each.

The tests of the core or of the disk once missed each of these faults. A unit test checks that each
text is in its file, so that it fails at once when a change of the core moves a text.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    #: A ``.pyx`` below the repository.
    path: str
    #: The text, which occurs exactly once, and its replacement.
    before: str
    after: str
    #: Files of tests, or single tests by their ids.
    tests: tuple[str, ...]


CORE = "kraft/_core"
UNIT = "tests/unit/_core"
#: The writers of files under partial writes and failed system calls, which are recorded.
CALLS = ("tests/durability/test_calls.py",)
#: A crash of a real store between any two of its recorded system calls.
STORE = ("tests/durability/test_store.py::test_a_crash_between_any_two_calls_breaks_no_promise",)

RECOVERY = (
    Fault(
        "the_search_misses_a_batch_of_61_bytes_at_the_end",
        f"{CORE}/log/recovery.pyx",
        "while position + BATCH_OVERHEAD <= total:",
        "while position + BATCH_OVERHEAD < total:",
        (f"{UNIT}/log/test_log_recovery.py",),
    ),
    Fault(
        "the_search_ends_one_byte_early",
        f"{CORE}/log/recovery.pyx",
        "<size_t>(total - position - BATCH_OVERHEAD + 1),",
        "<size_t>(total - position - BATCH_OVERHEAD),",
        (f"{UNIT}/log/test_log_recovery.py",),
    ),
    Fault(
        "a_later_segment_with_older_whole_batches_is_deleted",
        f"{CORE}/log/recovery.pyx",
        "                or self._find_behind(None, later, 0, -1, False)\n",
        "",
        (f"{UNIT}/log/test_log_recovery.py",),
    ),
    Fault(
        "the_last_synced_record_is_cut_before_the_refusal",
        f"{CORE}/log/recovery.pyx",
        "cuttable = self.next_offset >= self._synced_offset",
        "cuttable = self.next_offset + 1 >= self._synced_offset",
        (f"{UNIT}/log/test_log_recovery.py",),
    ),
    Fault(
        "a_later_segment_is_cut_without_a_sync_of_its_removal",
        f"{CORE}/log/recovery.pyx",
        "other.delete()\n                self._disk.sync_directory(self._directory)\n",
        "other.delete()\n",
        (f"{UNIT}/log/test_log_recovery.py",),
    ),
    Fault(
        "a_segment_cut_to_zero_keeps_its_first_timestamp",
        f"{CORE}/log/segment.pyx",
        "        if position == 0:\n            self.first_timestamp = -1\n",
        "",
        (f"{UNIT}/log/test_log.py",),
    ),
)

TABLE = (
    Fault(
        "an_image_shows_the_newest_block_in_place_of_the_oldest",
        f"{CORE}/table/images.pyx",
        "if has_block and known.oldest_block < 0:",
        "if has_block:",
        (f"{UNIT}/table/test_rows.py",),
    ),
    Fault(
        "an_image_shows_the_newest_change_in_place_of_the_oldest",
        f"{CORE}/table/images.pyx",
        "                known.oldest_block = sequence\n            return 0\n",
        "                known.oldest_block = sequence\n            known.oldest = sequence\n"
        "            return 0\n",
        (f"{UNIT}/table/test_rows.py",),
    ),
    Fault(
        "an_overlay_that_is_full_searches_for_ever",
        f"{CORE}/table/images.pyx",
        "if 2 * <uint64_t>(self.overlaid_count + 1) <= old_capacity:",
        "if <uint64_t>(self.overlaid_count + 1) <= old_capacity:",
        (f"{UNIT}/table/test_rows.py",),
    ),
    Fault(
        "a_reverted_irregular_row_leaves_its_block",
        f"{CORE}/table/rows.pyx",
        "                if self.isr[row] == IRREGULAR:\n"
        "                    free(self.detach_block(row))\n",
        "",
        (f"{UNIT}/table/test_rows.py",),
    ),
    Fault(
        "a_reverted_removal_does_not_count_its_partitions",
        f"{CORE}/table/rows.pyx",
        "            self.partition_count += topic.partition_count\n",
        "",
        (f"{UNIT}/table/test_rows.py",),
    ),
)

BYTES = (
    Fault(
        "the_last_known_elr_of_a_record_has_no_bound",
        f"{CORE}/codec/partition_codec.pyx",
        " or too_long(&out.elr) or too_long(&out.last_known_elr)",
        " or too_long(&out.elr)",
        (f"{UNIT}/codec/test_partition_codec.py",),
    ),
    Fault(
        "the_elr_of_a_record_has_no_bound",
        f"{CORE}/codec/partition_codec.pyx",
        " or too_long(&out.elr) or too_long(&out.last_known_elr)",
        " or too_long(&out.last_known_elr)",
        (f"{UNIT}/codec/test_partition_codec.py",),
    ),
    Fault(
        "the_last_known_elr_of_a_change_has_no_bound",
        f"{CORE}/codec/partition_codec.pyx",
        "            if list_.count > MAX_REPLICAS:",
        "            if tag != 7 and list_.count > MAX_REPLICAS:",
        (f"{UNIT}/codec/test_partition_codec.py",),
    ),
    Fault(
        "the_directories_of_a_change_have_no_bound",
        f"{CORE}/codec/partition_codec.pyx",
        "            if out.directories.count > MAX_REPLICAS:\n"
        "                return CODEC_TOO_MANY_REPLICAS\n",
        "",
        (f"{UNIT}/codec/test_partition_codec.py",),
    ),
    Fault(
        "each_batch_has_the_whole_budget_where_records_are_inflated",
        f"{CORE}/bytes/batch.pyx",
        "            budget -= PyBytes_GET_SIZE(payload)\n",
        "",
        (f"{UNIT}/bytes/test_batch.py",),
    ),
    Fault(
        "each_batch_has_the_whole_budget_where_records_are_checked",
        f"{CORE}/bytes/batch_check.pyx",
        "                budget -= len(payload)\n",
        "",
        (f"{UNIT}/bytes/test_batch.py",),
    ),
    Fault(
        "a_partition_named_again_is_seen_only_right_behind_itself",
        f"{CORE}/decide/alter_partition.pyx",
        "            if byte[0] >> (row & 7) & 1:\n",
        "            if index > 0 and asked[index - 1].row == row:\n",
        (f"{UNIT}/decide/test_alter_partition.py",),
    ),
    Fault(
        "a_partition_named_again_is_forgotten_behind_eight_rows",
        f"{CORE}/decide/alter_partition.pyx",
        "byte = self.seen.data + (row >> 3)",
        "byte = self.seen.data",
        (f"{UNIT}/decide/test_alter_partition.py",),
    ),
    Fault(
        "a_partition_named_again_is_not_seen_in_the_next_part",
        f"{CORE}/decide/alter_partition.pyx",
        "        if wanted > self.seen.size:\n",
        "        memset(self.seen.data, 0, self.seen.size)\n        if wanted > self.seen.size:\n",
        (f"{UNIT}/decide/test_alter_partition.py",),
    ),
    Fault(
        "a_member_is_taken_twice_behind_slot_8",
        f"{CORE}/decide/alter_partition.pyx",
        "            elif contains(members, index, member):\n"
        "                return INVALID_REQUEST\n",
        "",
        (f"{UNIT}/decide/test_alter_partition.py",),
    ),
    Fault(
        "a_member_is_taken_twice_before_slot_8",
        f"{CORE}/decide/alter_partition.pyx",
        "                if in_isr & found:\n                    return INVALID_REQUEST\n",
        "",
        (f"{UNIT}/decide/test_alter_partition.py",),
    ),
)

DISK = (
    Fault(
        "a_file_is_not_synced",
        f"{CORE}/log/disk.pyx",
        "failed = fdatasync(self._fd)",
        "failed = 0",
        STORE,
    ),
    Fault(
        "a_directory_is_not_synced",
        f"{CORE}/log/disk.pyx",
        "failed = fd < 0 or fsync(fd) != 0",
        "failed = fd < 0",
        STORE,
    ),
    Fault(
        "a_sync_that_failed_is_tried_again",
        f"{CORE}/log/disk.pyx",
        "            failed = fdatasync(self._fd)\n",
        "            failed = fdatasync(self._fd)\n            if failed:\n"
        "                failed = fdatasync(self._fd)\n",
        CALLS,
    ),
    Fault(
        "a_write_that_failed_is_tried_again",
        f"{CORE}/log/disk.pyx",
        '                self._failed("write to", code)\n',
        "                continue\n",
        CALLS,
    ),
    Fault(
        "a_write_in_part_is_taken_for_a_whole_one",
        f"{CORE}/log/disk.pyx",
        "            size -= written\n    ",
        "            size = 0\n    ",
        CALLS,
    ),
    Fault(
        "the_rest_of_a_write_in_part_begins_anew",
        f"{CORE}/log/disk.pyx",
        "            data += written\n",
        "",
        CALLS,
    ),
    Fault(
        "the_rest_of_several_buffers_is_too_long",
        f"{CORE}/log/disk.pyx",
        "            vectors[first].iov_len -= <size_t>written\n",
        "",
        CALLS,
    ),
    Fault(
        "an_atomic_write_does_not_sync_its_file",
        f"{CORE}/log/disk.pyx",
        "        file.append([data])\n        file.sync()\n",
        "        file.append([data])\n",
        STORE,
    ),
    Fault(
        "an_atomic_write_does_not_sync_its_directory",
        f"{CORE}/log/disk.pyx",
        '    disk.rename(temporary, path)\n    disk.sync_directory(os.path.dirname(path) or ".")\n',
        "    disk.rename(temporary, path)\n",
        STORE,
    ),
    Fault(
        "a_group_is_not_synced",
        f"{CORE}/log/group_writer.pyx",
        "if fdatasync(self._file._fd) != 0:",
        "if self._file._fd < 0:",
        STORE,
    ),
    Fault(
        "a_group_that_was_refused_is_written_again",
        f"{CORE}/log/group_writer.pyx",
        "                self._fail(errno, False)\n                return False\n",
        "                continue\n",
        CALLS,
    ),
    Fault(
        "the_rest_of_a_group_in_part_is_too_long",
        f"{CORE}/log/group_writer.pyx",
        "                vectors[next_vector].iov_len -= <size_t>written\n",
        "",
        CALLS,
    ),
    Fault(
        "a_note_in_part_is_taken_for_a_whole_one",
        f"{CORE}/log/group_writer.pyx",
        "                done += <int>written\n",
        "                return\n",
        CALLS,
    ),
    Fault(
        "a_group_is_noted_before_it_is_synced",
        f"{CORE}/log/group_writer.pyx",
        "        if fdatasync(self._file._fd) != 0:\n",
        "        self._write_note(last)\n        if fdatasync(self._file._fd) != 0:\n",
        STORE,
    ),
    Fault(
        "removals_are_synced_together",
        f"{CORE}/log/log.pyx",
        "            # For each segment: a crash must not leave a gap between segments.\n"
        "            self.disk.sync_directory(self.directory)\n",
        "        self.disk.sync_directory(self.directory)\n",
        (f"{UNIT}/log/test_log_recovery.py", "tests/durability/test_store.py"),
    ),
    Fault(
        "an_open_syncs_the_active_segment_only",
        f"{CORE}/log/log.pyx",
        "            segment.dirty = True\n",
        "            segment.dirty = segment is self._active\n",
        (f"{UNIT}/log/test_log_recovery.py", "tests/durability/test_store.py"),
    ),
    Fault(
        "a_segment_is_rolled_without_a_sync",
        f"{CORE}/log/log.pyx",
        "        self._active.sync()\n        self._active.become_inactive()\n",
        "        self._active.become_inactive()\n",
        (f"{UNIT}/log/test_log_recovery.py",),
    ),
    Fault(
        "a_cut_is_not_synced",
        f"{CORE}/log/segment.pyx",
        "            self._file.truncate(position)\n            self._file.sync()\n",
        "            self._file.truncate(position)\n",
        STORE,
    ),
    Fault(
        "a_snapshot_is_not_synced",
        f"{CORE}/snapshot/snapshot_file.pyx",
        "            self._file.sync()\n",
        "            pass\n",
        CALLS,
    ),
    Fault(
        "the_directory_of_a_snapshot_is_not_synced",
        f"{CORE}/snapshot/snapshot_file.pyx",
        '            self._disk.sync_directory(os.path.dirname(self.path) or ".")\n',
        "            pass\n",
        CALLS,
    ),
    Fault(
        "columns_are_not_synced",
        f"{CORE}/snapshot/column_checkpoint.pyx",
        "        file.sync()\n",
        "",
        CALLS,
    ),
    Fault(
        "the_directory_of_columns_is_not_synced",
        f"{CORE}/snapshot/column_checkpoint.pyx",
        '    disk.sync_directory(os.path.dirname(path) or ".")\n',
        "",
        CALLS,
    ),
)

COMPACTION = (
    Fault(
        "a_tombstone_stays_at_its_delete_horizon",
        f"{CORE}/bytes/batch_filter.pyx",
        "or now_ms < header.base_timestamp",
        "or now_ms <= header.base_timestamp",
        (f"{UNIT}/bytes/test_batch_filter.py",),
    ),
    Fault(
        "a_map_that_becomes_full_within_a_batch_forgets_where",
        f"{CORE}/bytes/key_offsets.pyx",
        "            offsets.latest_offset = max(offsets.latest_offset, offset)\n",
        "",
        (f"{UNIT}/bytes/test_key_offsets.py",),
    ),
    Fault(
        "a_replaced_segment_may_return_after_a_crash",
        f"{CORE}/log/data_log.pyx",
        "                self.disk.sync_directory(self.directory)\n"
        "                cleaned.end_swap()\n",
        "                cleaned.end_swap()\n",
        ("tests/unit/broker/log/test_compaction_crashes.py",),
    ),
)

FAULTS = (*RECOVERY, *TABLE, *BYTES, *DISK, *COMPACTION)
