"""Find kcat, or unpack Debian's package of it without installing it.

Where kcat is not on PATH, apt-get downloads the package, and the libraries of it that this machine
lacks, into `.interop/kcat` in the project (git-ignored). Nothing is installed, so that any user may
do it; later runs need no network. `MissingToolError` names the remedy where neither works.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.harness.kafka_jars import CACHE, MissingToolError, cache_lock

#: ``'https://…/kcat_1.7.1-2_amd64.deb' kcat_1.7.1-2_amd64.deb 33792 MD5Sum:…``
_LISTED = re.compile(r"^'\S+' ([^_\s]+)_\S+\.deb ", re.MULTILINE)
_REMEDY = "Install kcat (Debian: apt-get install kcat)."


@cache
def kcat_command() -> tuple[str, ...]:
    """Return the beginning of kcat's argument vector. Raises MissingToolError."""
    installed = shutil.which("kcat")
    if installed is not None:
        return (installed,)
    directory = CACHE / "kcat"
    with cache_lock():
        if not directory.is_dir():
            _unpack(directory)
    libraries = ":".join(str(path) for path in sorted(directory.glob("usr/lib/*-linux-*")))
    command = ("env", f"LD_LIBRARY_PATH={libraries}", str(directory / "usr" / "bin" / "kcat"))
    # A package of another release of the system lacks libraries of this one.
    done = subprocess.run([*command, "-V"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingToolError(
            f"kcat of {directory} does not run; remove the directory. {_REMEDY}\n{done.stderr}"
        )
    return command


def _unpack(directory: Path) -> None:
    """Fill ``directory`` with the files of the package and of the libraries it needs."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"kcat is not on PATH, and there is no {tool}. {_REMEDY}")
    partial = directory.with_name("kcat.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in ("archives", "cache", "lists", "root"):
        (partial / name).mkdir(parents=True)
    # The system's lists of packages first: lists of our own are 26 MB.
    own_lists = (f"-oDir::State::lists={partial}/lists", f"-oDir::Cache={partial}/cache")
    problem = ""
    for options in ((), own_lists):
        try:
            if options:
                _apt(partial, *options, "update")
            listed = _apt(partial, *options, "install", "--print-uris", "kcat")
            _apt(partial, *options, "download", *_LISTED.findall(listed))
        except subprocess.CalledProcessError as error:
            problem = f"{error}\n{error.stderr}"
            continue
        for package in (partial / "archives").glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(partial / "root")], check=True)
        (partial / "root").rename(directory)
        shutil.rmtree(partial)
        return
    raise MissingToolError(f"apt-get cannot download kcat. {_REMEDY}\n{problem}")


def _apt(partial: Path, *words: str) -> str:
    """Run apt-get in the directory of archives, without the lock that only root may take."""
    options = "-oDebug::NoLocking=1", "-oAcquire::Retries=3"
    command = ["apt-get", "-qq", *options, *words]
    return subprocess.run(
        command, cwd=partial / "archives", capture_output=True, text=True, check=True
    ).stdout
