"""ListGroups, DescribeGroups, and whether a group may be deleted.

Source: ``GroupMetadataManager.listGroups``, ``describeGroups``, ``validateDeleteGroup``; KIP-518,
KIP-848 (filters), KIP-1043 (errors of groups that do not exist).
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.broker.groups.errors import GroupError
from kraft.broker.groups.group import GroupState
from kraft.broker.groups.group_table import GroupTable
from kraft.errors import GROUP_ID_NOT_FOUND
from kraft.protocol.describe_groups import DescribedGroup
from kraft.protocol.list_groups import ListedGroup

_CLASSIC = "classic"
#: The first version of DescribeGroups with an error for a group that does not exist.
_NOT_FOUND_VERSION = 6


class GroupListing:
    """What is said of groups that exist by committed records."""

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups

    def list(
        self, states_filter: Sequence[str] = (), types_filter: Sequence[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups in one of these states and of one of these types; empty means any.

        Upper and lower case are the same.
        """
        states = {state.lower().strip() for state in states_filter}
        if types_filter and _CLASSIC not in {kind.lower().strip() for kind in types_filter}:
            return []
        return [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value, _CLASSIC)
            for group in self._groups.all_committed()
            if not states or group.state.value.lower() in states
        ]

    def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        """Return a group with its members; a group that does not exist is dead."""
        group = self._groups.committed(group_id)
        if group is None:
            described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
            if api_version >= _NOT_FOUND_VERSION:
                described.error_code = GROUP_ID_NOT_FOUND
                described.error_message = f"Group {group_id} not found."
            return described
        protocol = group.protocol_name if group.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[one.described(protocol) for one in group.members.values()],
        )

    def check_deletable(self, group_id: str) -> None:
        """Raise GroupError if the group, as it is now, is missing or not empty."""
        group = self._groups.get(group_id)
        if group is None:
            raise GroupError(GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.validate_delete()
