"""Start Apache ZooKeeper, and connect to it or to one that is already there.

The server is the one in the wheel ``pyspark``, whose directory ``jars`` has it with what it needs;
it listens on loopback, in a process of its own, and ends with the process that started it.
The client is ``kazoo``. Both are in ``pip install 'kraft[zookeeper]'``.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from kraft.errors import InvalidArgumentError, MissingPackageError, StorageError, ZooKeeperError
from kraft.java import find_java
from kraft.server.local_quorum import LOOPBACK, free_ports

if TYPE_CHECKING:
    from kazoo.client import KazooClient

DEFAULT_PORT = 2181
#: ZooKeeper's own default; sessions last 2 to 20 ticks.
DEFAULT_TICK_MS = 2000
DEFAULT_HEAP_MB = 512
#: Kafka's default for ``zookeeper.session.timeout.ms`` until 2.5.
DEFAULT_SESSION_TIMEOUT_MS = 6000
#: The same: ``zookeeper.connection.timeout.ms`` is the session timeout unless set.
DEFAULT_CONNECT_TIMEOUT_S = 6.0

#: Beginnings of the names of the jars. Without snappy and metrics the server does not start;
#: log4j prints its warnings.
_JARS = (
    "zookeeper-",
    "slf4j-api-",
    "metrics-core-",
    "snappy-java-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
)
_NEEDED_JARS = _JARS[:4]
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
#: The largest znode and list of children. ZooKeeper's default of 1 MiB is a topic of 50,000
#: partitions, or 30,000 topics.
_LARGEST_MESSAGE = 256 << 20
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_SERVER = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-_.]+))(?::([0-9]{1,5}))?")
_ADVICE = "pip install 'kraft[zookeeper]'"
# Kills the server when this process ends, however it ends: the pipe's only writer is this process.
_WATCHDOG = 'cat >/dev/null; kill -KILL "$1"'


# Python prints warnings without a handler on stderr: kazoo's of each connection that is closed.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


def zookeeper_jars() -> list[Path]:
    """Return the jars of ZooKeeper's class path, from the wheel ``pyspark``.

    Raises MissingPackageError without the wheel, or if it lacks one of them.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingPackageError(
            f"Apache ZooKeeper is taken from the package pyspark, which is missing: {_ADVICE}"
        )
    directory = Path(spec.origin).parent / "jars"
    jars = sorted(path for path in directory.glob("*.jar") if path.name.startswith(_JARS))
    missing = [
        name for name in _NEEDED_JARS if not any(path.name.startswith(name) for path in jars)
    ]
    if missing:
        raise MissingPackageError(
            f"{directory} has no {' and no '.join(f'{name}*.jar' for name in missing)}: "
            f"install pyspark again: {_ADVICE}"
        )
    return jars


class LocalZooKeeper:
    """One ZooKeeper server on loopback, with its files in ``directory``.

    A context manager that starts and stops it. A directory that holds a server's data is used
    again. ``port`` None chooses a free one. ``tick_ms`` is the unit of session timeouts: a client
    gets 2 to 20 ticks. Not thread-safe.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        tick_ms: int = DEFAULT_TICK_MS,
        heap_mb: int = DEFAULT_HEAP_MB,
    ) -> None:
        self.directory = directory
        self.port = free_ports(1)[0] if port is None else port
        self.log_path = directory / "zookeeper.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._tick_ms = tick_ms
        self._heap_mb = heap_mb

    @property
    def endpoint(self) -> str:
        """The address for clients, HOST:PORT."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the server; return when it answers.

        Raises MissingJavaError, MissingPackageError, StorageError for a directory that cannot be
        written, ZooKeeperError with the end of its log if it does not start.
        """
        assert not self.is_running
        java = find_java("ZooKeeper").home / "bin" / "java"
        jars = zookeeper_jars()
        # Else the answer of another server on this port would be taken for the answer of this one.
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, self.port))
            except OSError as error:
                raise ZooKeeperError(
                    f"port {self.port} of {LOOPBACK} is not free: {error.strerror}; choose another"
                ) from None
        try:
            config = self._write_config()
            with self.log_path.open("ab") as log:
                self._start_process(java, jars, config, log)
        except OSError as error:
            raise StorageError(f"{self.directory}: {error.strerror}") from error
        try:
            self._await_start()
        except BaseException:
            self.kill()
            raise

    def _write_config(self) -> Path:
        data = self.directory.resolve() / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self.directory / "zookeeper.properties"
        fields = {
            "dataDir": str(data).replace("\\", "\\\\"),
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            "tickTime": self._tick_ms,
            # Hundreds of brokers connect from one address.
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in fields.items()))
        return config

    def _start_process(
        self, java: Path, jars: Sequence[Path], config: Path, log: IO[bytes]
    ) -> None:
        self.process = subprocess.Popen(
            [
                str(java),
                f"-Xmx{self._heap_mb}m",
                *("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true"),
                f"-Djute.maxbuffer={_LARGEST_MESSAGE}",
                "-Dorg.apache.logging.log4j.level=WARN",
                *("-cp", os.pathsep.join(map(str, jars)), _MAIN, str(config)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in a terminal reaches only this process, which stops the server.
            start_new_session=True,
        )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "sh", str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _await_start(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        # It answers "ruok" already before it has read its data.
        while "Zookeeper version" not in four_letters(LOOPBACK, self.port, "srvr"):
            if self.process.poll() is not None:
                what = f"ended with exit code {self.process.returncode}"
            elif time.monotonic() > deadline:
                what = f"does not answer within {_START_TIMEOUT_S:.0f} s"
            else:
                time.sleep(0.03)
                continue
            tail = self.log_path.read_text(errors="replace").splitlines()[-5:]
            raise ZooKeeperError(
                f"ZooKeeper {what}; its log is {self.log_path}:\n  " + "\n  ".join(tail)
            )

    def stop(self) -> None:
        """Stop the server, if it runs; kill it if it does not stop within 10 s."""
        if self.process is not None and self.is_running:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server as ``kill -9`` does and wait for its end; acknowledged writes survive."""
        for process in (self.process, self._watchdog):
            if process is not None:
                process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def four_letters(host: str, port: int, word: str, *, timeout_s: float = 5.0) -> str:
    """Return the answer to one of ZooKeeper's four-letter words; "" if there is no server."""
    answer = b""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(word.encode())
            while received := connection.recv(65536):
                answer += received
    except OSError:
        return ""
    return answer.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers of an ensemble and the chroot of a Kafka cluster, as in ``zookeeper.connect``."""

    servers: tuple[tuple[str, int], ...]
    #: "" or a path such as ``/kafka``.
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> ZooKeeperAddress:
        """Return the address in ``HOST:PORT[,HOST:PORT…][/CHROOT]``; the port may be left out.

        Raises InvalidArgumentError for other texts.
        """
        hosts, slash, path = text.partition("/")
        servers: list[tuple[str, int]] = []
        for one in hosts.split(","):
            found = _SERVER.fullmatch(one.strip())
            port = int(found[3] or DEFAULT_PORT) if found else 0
            if found is None or not 0 < port < 65536:
                raise InvalidArgumentError(
                    f"{text!r} is no address of ZooKeeper; write HOST:PORT or HOST:PORT/CHROOT, "
                    "several servers separated by commas"
                )
            servers.append((found[1] or found[2], port))
        path = path.strip("/")
        if slash and "//" in path:
            raise InvalidArgumentError(f"the chroot of {text!r} has an empty name")
        return cls(tuple(servers), f"/{path}" if path else "")

    @property
    def hosts(self) -> str:
        """The servers without the chroot, as clients want them."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )

    def __str__(self) -> str:
        return f"{self.hosts}{self.chroot}"


def open_client(
    address: ZooKeeperAddress,
    *,
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
    creates_chroot: bool = False,
) -> KazooClient:
    """Connect to ZooKeeper; all paths of the client are below the chroot.

    The caller stops and closes it. Raises MissingPackageError without kazoo, ZooKeeperError if no
    server answers in time or the chroot does not exist and ``creates_chroot`` is false.
    """
    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise MissingPackageError(f"ZooKeeper needs the package kazoo: {_ADVICE}") from None
    # The chroot is set after its check: kazoo has no call that ignores it.
    client = KazooClient(address.hosts, timeout=session_timeout_ms / 1000)
    try:
        client.start(connect_timeout_s)
        if address.chroot:
            if creates_chroot:
                client.ensure_path(address.chroot)
            elif client.exists(address.chroot) is None:
                raise ZooKeeperError(
                    f"ZooKeeper at {address.hosts} has no {address.chroot}; "
                    "see the end of zookeeper.connect in a broker's configuration"
                )
            client.chroot = address.chroot
    except KazooTimeoutError:
        close_client(client)
        raise ZooKeeperError(
            f"no ZooKeeper server answers at {address.hosts} within {connect_timeout_s:g} s"
        ) from None
    except KazooException as error:
        close_client(client)
        raise ZooKeeperError(f"ZooKeeper at {address.hosts}: {error!r}") from error
    except BaseException:
        close_client(client)
        raise
    return client


def close_client(client: KazooClient) -> None:
    """End the client's session and free its sockets and threads."""
    client.stop()
    client.close()
