"""The processes of light brokers of the ZooKeeper era, from their parent's side.

`ZkLightBrokers` has two of them: one with all brokers but the last, and one with the last, which is
killed in the step ``crash``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kraft.errors import KraftError
from kraft.generations.measures import Deadline
from kraft.generations.zk_worker import Knowledge, ZkWorkerPlan

_END_TIMEOUT_S = 10.0
_LOOK_S = 0.005


class ZkLightBrokers:
    """Light brokers 1 to ``count``. Close it at the end."""

    def __init__(
        self,
        count: int,
        racks: int,
        zookeeper: str,
        session_timeout_ms: int,
        directory: Path,
        *,
        is_0_8: bool,
    ) -> None:
        self.ids = range(1, count + 1)
        self._lock = threading.Lock()
        self._token = 0
        #: The last state of each broker as its process reported it, and when.
        self._states: dict[int, tuple[str, float]] = {}
        self._known: dict[int, dict[int, float]] = {}
        self._failure = ""
        #: The brokers whose request to stop had no answer.
        self._unanswered: set[int] = set()
        self.running: set[int] = set()
        self._processes: list[_Process] = []
        for number, ids in enumerate((self.ids[:-1], self.ids[-1:])):
            brokers = [(id, f"rack-{id % racks + 1}") for id in ids]
            plan = ZkWorkerPlan(zookeeper, session_timeout_ms, is_0_8, brokers)
            path = directory / f"brokers-{number}.json"
            path.write_text(plan.encode())
            self._processes.append(_Process(number, frozenset(ids), path, self._received))

    def open(self, deadline: Deadline) -> None:
        """Start the processes that do not run, without their brokers."""
        for process in self._processes:
            process.open()
        self._wait(lambda: all(each.is_ready for each in self._processes), deadline)

    def _received(self, number: int, line: dict[str, Any]) -> None:
        with self._lock:
            for state in ("started", "stopped", "ended"):
                if state in line:
                    self._states[line[state]] = state, line["at"]
            if "known" in line:
                self._known.setdefault(line["known"], {})[number] = line["at"]
            elif "unanswered" in line:
                self._unanswered.add(line["unanswered"])
            elif "failed" in line:
                self._failure = self._failure or line["failed"]

    def _wait(self, is_reached: Callable[[], bool], deadline: Deadline) -> None:
        """Wait for a condition. Raises RunTimeoutError, KraftError for a fault of a process."""
        while True:
            with self._lock:
                if self._failure:
                    raise KraftError(self._failure)
                if is_reached():
                    return
            deadline.left_s()
            time.sleep(_LOOK_S)

    # -- brokers

    def _change(self, ids: Collection[int], do: str, state: str, deadline: Deadline) -> float:
        with self._lock:
            for id in ids:
                self._states.pop(id, None)
        for process in self._processes:
            own = sorted(process.ids & set(ids))
            if own:
                process.send(do=do, brokers=own)
        self._wait(lambda: all(self._states.get(id, ("", 0.0))[0] == state for id in ids), deadline)
        return max((self._states[id][1] for id in ids), default=time.monotonic())

    def start(self, ids: Collection[int], deadline: Deadline) -> None:
        """Start brokers; return when they are registered."""
        self._change(ids, "start", "started", deadline)
        self.running |= set(ids)

    def stop(self, id: int, deadline: Deadline) -> float | None:
        """Stop a broker by a controlled shutdown; return when it had ended (monotonic clock).

        None: the controller did not answer in the 30 s that brokers wait. It has ended too.
        """
        self.running.discard(id)
        self._unanswered.discard(id)
        stopped = self._change([id], "stop", "stopped", deadline)
        return None if id in self._unanswered else stopped

    def end_all(self, deadline: Deadline) -> None:
        """End all brokers and their sessions."""
        ids = sorted(self.running)
        self.running.clear()
        self._change(ids, "end", "ended", deadline)

    def crash_last(self) -> None:
        """Kill the process of the last broker."""
        self.running.discard(self.ids[-1])
        self._processes[-1].kill()

    # -- what they know

    def expect(self, knowledge: Knowledge) -> int:
        """Begin to wait until every running broker knows this; return the token for `known`."""
        with self._lock:
            self._token += 1
            token = self._token
        for process in self._processes:
            if process.ids & self.running:
                process.send(do="await", token=token, knowledge=asdict(knowledge))
        return token

    def known(self, token: int, deadline: Deadline) -> float:
        """Wait until all know it; return when the last one did (monotonic clock)."""
        numbers = {each.number for each in self._processes if each.ids & self.running}
        self._wait(lambda: self._known.get(token, {}).keys() >= numbers, deadline)
        return max(self._known.pop(token).values())

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.end()


class _Process:
    """One worker; its lines are passed on by a thread."""

    def __init__(
        self,
        number: int,
        ids: frozenset[int],
        plan: Path,
        received: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self.number = number
        self.ids = ids
        self.is_ready = False
        self._plan = plan
        self._received = received
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def open(self) -> None:
        if self._process is not None:
            return
        with self._plan.with_suffix(".log").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kraft.generations.zk_worker", str(self._plan)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C reaches only the parent, which ends it.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            if "ready" in line:
                self.is_ready = True
            self._received(self.number, line)
        if self._process is process:
            said = self._plan.with_suffix(".log").read_text(errors="replace")[-2000:]
            self._received(self.number, {"failed": f"a process of light brokers ended:\n{said}"})

    def send(self, **command: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the process, as kill -9."""
        process = self._forget()
        if process is not None:
            process.kill()
            self._reap(process)

    def end(self) -> None:
        """Close its input, which ends it; kill it if that takes too long."""
        process = self._forget()
        if process is None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
        self._reap(process)

    def _forget(self) -> subprocess.Popen[bytes] | None:
        # First: the end of its output is no failure then.
        process, self._process, self.is_ready = self._process, None, False
        return process

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if self._reader is not None:
            self._reader.join(_END_TIMEOUT_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
