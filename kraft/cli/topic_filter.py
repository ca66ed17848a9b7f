"""Which records speak of a topic.

Owns the way from a topic's name to the records that carry only its id: Topic records tell it as
they pass, and for a log that is not read from its beginning, the state where reading begins.
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
    """Lets pass what speaks of topics with these names or ids; to be asked in the log's order."""

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
        """A filter for the records of ``source`` from offset ``since`` on."""
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
        """Whether the record is of one of the topics."""
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
                # An empty name is every topic.
                return not record.topic_name or record.topic_name in self.names
        return False
