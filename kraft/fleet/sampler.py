"""``Sampler``: what the processes of a run use, written to the trace once a second.

Reads ``/proc`` and the statistics that the fleet's processes report. Created by ``launch``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from kraft.fleet.fleet import Fleet
from kraft.fleet.samples import ProcessUse, queue_time_p99_ms, use_of
from kraft.fleet.trace import FleetTrace


class Sampler:
    """Writes the use of the machine to the trace once a second, in a thread."""

    def __init__(
        self,
        fleet: Fleet,
        trace: FleetTrace,
        controllers: Callable[[], Mapping[int, int]],
        metrics_ports: Sequence[int] = (),
    ) -> None:
        """``controllers`` returns the processes by port; ``metrics_ports`` serve their metrics."""
        self._fleet = fleet
        self._trace = trace
        self._controllers = controllers
        self._metrics_ports = metrics_ports
        self._stopping = threading.Event()
        #: The last values by name.
        self.last: dict[str, float] = {}
        #: Sum and number of samples of each kind of CPU by step.
        self._sums: dict[str, dict[str, tuple[float, int]]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._sample()
        except OSError as error:
            self._fleet.fail_trace(error)

    def _sample(self) -> None:
        before: tuple[float, dict[int, ProcessUse], ProcessUse] | None = None
        while not self._stopping.wait(1.0):
            now = time.monotonic()
            by_port = {port: use_of([pid]) for port, pid in self._controllers().items()}
            fleet = use_of(self._fleet.pids)
            statistics = list(self._fleet.statistics.values())
            values = {
                "controller_rss": float(sum(each.rss for each in by_port.values())),
                "fleet_rss": float(fleet.rss),
                "disk_bytes": float(sum(each.disk_bytes for each in by_port.values())),
                "network_bytes": float(sum(each["received_bytes"] for each in statistics)),
                "observer_fetches": float(sum(each["fetches"] for each in statistics)),
                "heartbeats": float(sum(each["heartbeats"] for each in statistics)),
                "metadata_offset": float(max((each["offset"] for each in statistics), default=0)),
                "applied_lag_records": float(
                    max((each["applied_lag"] for each in statistics), default=0)
                ),
            }
            values["fleet_delay"] = self._fleet.take_delay()
            queue_time = queue_time_p99_ms(self._metrics_ports)
            if queue_time is not None:
                values["queue_time_p99"] = queue_time
            if before is not None:
                seconds = now - before[0]
                # A controller that was started again has used less than before.
                used = {
                    port: max(each.cpu_s - before[1].get(port, each).cpu_s, 0) / seconds
                    for port, each in by_port.items()
                }
                values["controller_cpu"] = sum(used.values())
                leading = {each["leader_port"] for each in statistics} & used.keys()
                if len(leading) == 1:
                    values["active_controller_cpu"] = used[leading.pop()]
                values["fleet_cpu"] = max(fleet.cpu_s - before[2].cpu_s, 0) / seconds
            before = now, by_port, fleet
            for name, value in values.items():
                self._trace.event(name, value=value, at_s=now)
                if name.endswith("_cpu"):
                    sums = self._sums.setdefault(self._trace.step, {})
                    total, count = sums.get(name, (0.0, 0))
                    sums[name] = total + value, count + 1
            self._trace.flush()
            self.last = values

    def means(self) -> dict[str, dict[str, float]]:
        """Return the mean cores of controllers and fleet in each step, where they were sampled."""
        return {
            step: {name: total / count for name, (total, count) in sums.items()}
            for step, sums in list(self._sums.items())
        }

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
