"""Measure commits of a git repository by a user's command, in a worktree of their own.

`commits_between` lists the commits; `CommitRunner` checks them out in a temporary worktree and runs
the command there, so that the user's working copy is never touched. An interrupt (Ctrl-C, SIGTERM)
ends the command with all processes that it started, and the worktree is removed: both are done at
fixed places of this module, never inside an arbitrary line.

Used by `kraft.cli.regress_bisect`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kraft.errors import InvalidRequestError

#: Seconds that a command's processes have to end after SIGTERM, before SIGKILL.
_GRACE_S = 10.0
_POLL_S = 0.1
_STDERR = 2


def git(repository: str | os.PathLike[str], *arguments: str) -> str:
    """Return the output of a git command in a repository.

    Raises:
        InvalidRequestError: git fails; the message has its own.
    """
    command = ["git", "-C", os.fspath(repository), *arguments]
    try:
        # A session of its own: Ctrl-C must not end git between two steps of its work.
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        raise InvalidRequestError(f"{repository}: git {arguments[0]}: {said}") from None
    return ran.stdout.strip()


def commits_between(repository: str | os.PathLike[str], old: str, new: str) -> list[str]:
    """Return the full hashes of ``old`` and of all commits after it up to ``new``, oldest first.

    Of a merge the first parent is followed: its whole branch is one commit of the result.

    Raises:
        InvalidRequestError: a commit is not in the repository, or ``old`` is not an ancestor of
            ``new``.
    """
    first, last = (
        git(repository, "rev-parse", "--verify", "--quiet", f"{each}^{{commit}}")
        if _is_there(repository, each)
        else ""
        for each in (old, new)
    )
    for name, found in ((old, first), (new, last)):
        if not found:
            raise InvalidRequestError(f"{repository}: the repository has no commit {name}")
    if git(repository, "merge-base", first, last) != first:
        raise InvalidRequestError(
            f"{repository}: {old} is not an ancestor of {new}: name a commit before the change"
        )
    listed = git(repository, "rev-list", "--reverse", "--first-parent", f"{first}..{last}")
    return [first, *listed.split()]


def _is_there(repository: str | os.PathLike[str], commit: str) -> bool:
    command = ["git", "-C", os.fspath(repository), "cat-file", "-e", f"{commit}^{{commit}}"]
    ran = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    return ran.returncode == 0


class Interrupts:
    """Interrupts that were received; `check` raises KeyboardInterrupt for them."""

    def __init__(self) -> None:
        self.received = False

    def check(self) -> None:
        if self.received:
            raise KeyboardInterrupt

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Record SIGINT and SIGTERM instead of raising at an arbitrary place.

    A thread other than the main one cannot do that: there, nothing is deferred.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, interrupts._receive) for number in numbers]
    try:
        yield interrupts
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class CommitRunner:
    """Runs a command for commits; a context manager that owns the worktree."""

    def __init__(
        self, repository: str | os.PathLike[str], command: str, interrupts: Interrupts
    ) -> None:
        self._repository = os.path.abspath(repository)
        self._command = command
        self._interrupts = interrupts
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._tree = ""

    def __enter__(self) -> CommitRunner:
        self._folder = tempfile.TemporaryDirectory(prefix="kraft-bisect-")
        self._tree = os.path.join(self._folder.name, "tree")
        try:
            git(self._repository, "worktree", "add", "--detach", "--quiet", self._tree, "HEAD")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._folder is not None
        self._folder.cleanup()
        self._folder = None
        # Removes the entry of the deleted folder, also of one that git had not finished.
        git(self._repository, "worktree", "prune")

    def run(self, commit: str, result: Path) -> int:
        """Check out a commit, run the command there, and return its exit code.

        The command is run by the shell in the worktree, which is cleaned of everything that git
        does not know. It writes its result to the file ``$KRAFT_RESULT``, which is ``result``;
        ``$KRAFT_COMMIT`` is the commit. Its output goes to stderr.

        Raises:
            KeyboardInterrupt: an interrupt arrived; the command and its processes have ended.
            InvalidRequestError: git cannot check out the commit.
        """
        self._interrupts.check()
        git(self._tree, "checkout", "--quiet", "--force", "--detach", commit)
        git(self._tree, "clean", "-ffdxq")
        self._interrupts.check()
        names = {"KRAFT_COMMIT": commit, "KRAFT_RESULT": str(result.absolute())}
        process = subprocess.Popen(
            self._command,
            shell=True,
            cwd=self._tree,
            env={**os.environ, **names},
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,
            start_new_session=True,
        )
        try:
            while not _has_ended(process):
                self._interrupts.check()
                time.sleep(_POLL_S)
        finally:
            _end(process)
        return process.returncode


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process ended. It is not waited for, so that its group keeps its number."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End every process of the command's group: by SIGTERM, and those that are left by SIGKILL."""
    if not _has_ended(process):
        os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + _GRACE_S
        while not _has_ended(process) and time.monotonic() < until:
            time.sleep(_POLL_S)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def result_name(commit: str, taken: Sequence[str]) -> str:
    """Return the name of the next result of a commit, which is not among ``taken``."""
    number = 1
    while f"{commit}-{number}.json" in taken:
        number += 1
    return f"{commit}-{number}.json"
