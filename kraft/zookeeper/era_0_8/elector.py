"""Elects the controller of 0.8: who creates the ephemeral ``/controller``.

Rules: ``ZookeeperLeaderElector.scala`` of Kafka 0.8.2.2, and
``createEphemeralPathExpectConflictHandleZKBug`` in its ``ZkUtils.scala``. Different here: a leader
whose znode now names another resigns, as from Kafka 0.10.2 on (KAFKA-4447).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kraft.errors import KraftError
from kraft.zookeeper import znodes
from kraft.zookeeper.controller_znodes import ControllerZnodes

_log = logging.getLogger(__name__)

NO_LEADER_ID = -1


class LeaderElector:
    """One candidate. The caller holds the controller's lock during each call.

    ``on_elected`` makes it the active controller, ``on_resigned`` undoes that, ``is_active`` tells
    which it is; ``now_ms`` is the time for the znode. ``wait_ms`` pauses the calling thread for at
    most a time in milliseconds.
    """

    def __init__(
        self,
        broker_id: int,
        tree: ControllerZnodes,
        *,
        is_active: Callable[[], bool],
        on_elected: Callable[[], None],
        on_resigned: Callable[[], None],
        now_ms: Callable[[], int],
        wait_ms: Callable[[int], None],
        session_timeout_ms: int,
    ) -> None:
        #: The broker id in ``/controller``, as far as this candidate knows.
        self.leader_id = NO_LEADER_ID
        self._broker_id = broker_id
        self._tree = tree
        self._is_active = is_active
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self._session_timeout_ms = session_timeout_ms

    @property
    def is_leader(self) -> bool:
        """Whether ``/controller`` has this broker's id, also from an earlier session."""
        return self.leader_id == self._broker_id

    def start(self) -> None:
        """Watch ``/controller``, and elect."""
        self._tree.watch(znodes.CONTROLLER)
        self.elect()

    def elect(self) -> None:
        """Become the leader, or find out who is.

        Any error while it becomes active makes it resign; errors of the election itself pass
        through.
        """
        self.leader_id, _ = self._tree.controller()
        if self.leader_id != NO_LEADER_ID:
            return
        while not self._tree.create_controller(self._broker_id, self._now_ms()):
            self.leader_id, is_mine = self._tree.controller()
            if self.is_leader and not is_mine:
                # Of an earlier session, which ZooKeeper is about to end: wait, holding the lock.
                _log.info("controller %d waits for the end of its old session", self._broker_id)
                self._wait_ms(self._session_timeout_ms)
            elif self.leader_id != NO_LEADER_ID:
                return
        self.leader_id = self._broker_id
        try:
            self._on_elected()
        except KraftError as error:
            _log.error("controller %d could not become active: %s", self._broker_id, error)
            self.resign()

    def resign(self) -> None:
        """Stop to be active and delete ``/controller``, which starts the next election."""
        self.leader_id = NO_LEADER_ID
        self._on_resigned()
        try:
            self._tree.unregister(self._broker_id)
            self._tree.delete_controller()
        except KraftError as error:
            # The session has ended, or ends: the znode goes with it.
            _log.warning("controller %d: %s", self._broker_id, error)

    def leader_changed(self) -> None:
        """Act on a change of ``/controller`` (``LeaderChangeListener``).

        As the client of Kafka 0.8 it looks at the znode, not at the kind of the change: present, it
        names the leader; gone, this controller resigns if it was active, and an election begins.
        """
        (exists,) = self._tree.watch(znodes.CONTROLLER)
        was_active = self._is_active()
        if exists:
            self.leader_id, is_mine = self._tree.controller()
            if was_active and not is_mine:
                self._step_aside()
            if self.leader_id != NO_LEADER_ID:
                return
        elif was_active:
            self._step_aside()
        self.elect()

    def _step_aside(self) -> None:
        self._on_resigned()
        self._tree.unregister(self._broker_id)
