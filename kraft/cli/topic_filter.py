"""Select the records of given topics.

Maps topic names to the ids that other records contain: from Topic records as they pass, and, for a
log that is not read from its beginning, from the state at that offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraft import records
from kraft.image.configs import TOPIC
from kraft.records import Record, Uuid

if TYPE_CHECKING:
    from kraft.metadata.source import MetadataSource


class TopicFilter:
    """Matches records of topics with these names or ids; records must come in log order."""

    def __init__(self, names_or_ids: Iterable[str]) -> None:
        self.names = set(names_or_ids)
        self.ids: set[Uuid] = set()
        for text in self.names:
            try:
                self.ids.add(Uuid.parse(text))
            except ValueError:
                continue

    @classmethod
    def of(cls, names_or_ids: Iterable[str], source: MetadataSource, since: int) -> TopicFilter:
        """Return a filter for the records of ``source`` from offset ``since`` on."""
        made = cls(names_or_ids)
        first, last = source.offset_range
        begins_in_the_middle = (
            source.log_end_offset >= 0 and max(since, source.log_start_offset) > 0
        )
        if begins_in_the_middle and not source.is_partial:
            cluster, _ = source.load(min(max(since, first), last))
            for name in sorted(made.names):
                number = cluster.table.topic_number(name)
                if number >= 0:
                    made.ids.add(Uuid(cluster.table.topic_id_of(number)))
            for topic_id in sorted(made.ids):
                number = cluster.table.topic_number_by_id(topic_id)
                if number >= 0:
                    made.names.add(cluster.table.topic_name(number))
        return made

    def matches(self, record: Record | None) -> bool:
        """Return whether the record belongs to one of the topics."""
        match record:
            case records.Topic():
                if record.name in self.names or record.topic_id in self.ids:
                    self.ids.add(record.topic_id)
                    self.names.add(record.name)
                    return True
                return False
            case records.Partition() | records.PartitionChange() | records.RemoveTopic():
                return record.topic_id in self.ids
            case records.Config():
                return record.resource_type == TOPIC and record.resource_name in self.names
            case records.ClearElr():
                # An empty name means every topic.
                return not record.topic_name or record.topic_name in self.names
        return False
