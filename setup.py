"""Build the compiled core: one extension per ``kraft/_core/**/*.pyx``.

By default the extensions run on any x86-64 CPU of level `PORTABLE_LEVEL` (on other architectures
on the compiler's default CPU) and contain no symbols: the form for wheels. The modules `HOT` are
compiled for `HOT_LEVEL` as well, into ``kraft/_core/v3``; ``kraft._core`` chooses when it is
imported.

Environment variables (all optional):

``KRAFT_MARCH=native``  compile for another CPU level, with symbols; ``make build`` uses ``native``
``KRAFT_DEBUG=1``       bounds checks, line tracing, no optimisation
``KRAFT_SANITIZE=1``    address and undefined-behaviour sanitizers; a report ends the process;
                        with ``CC=clang`` also coverage for the fuzzer of ``make fuzz``;
                        ``thread``: the thread sanitizer in their place
``KRAFT_MODULES=a,b``   build only these modules of the core, named like ``log.segment``
"""

import os
import platform
import sys
from copy import copy
from pathlib import Path
from typing import Any

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = Path("kraft/_core")

#: CPU level of portable x86-64 builds (https://gitlab.com/x86-psABIs/x86-64-ABI).
PORTABLE_LEVEL = "x86-64-v2"
#: Modules that need more instructions at `PORTABLE_LEVEL` than at `HOT_LEVEL`, which has AVX2: 21 %
#: more to encode partitions (row_encoder), 44 % to verify a column checkpoint; the others at most
#: 2 %.
HOT = ("row_encoder", "column_check")
HOT_LEVEL = "x86-64-v3"
#: Modules that use epoll and sendfile; elsewhere the event loop does their work.
LINUX_ONLY = tuple(
    f"sockets.{name}"
    for name in ("data_loop", "expected", "incoming", "mover", "outgoing", "responses")
)


def switched_on(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


DEBUG = switched_on("KRAFT_DEBUG")
SANITIZE = switched_on("KRAFT_SANITIZE")
FUZZ = SANITIZE and "clang" in os.environ.get("CC", "")
MARCH = os.environ.get("KRAFT_MARCH", "")
IS_X86 = platform.machine() in ("x86_64", "AMD64")

compile_args = ["-std=c11", "-Wall", "-Wno-unused-function", "-Wno-unreachable-code"]
link_args: list[str] = []
macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
if DEBUG:
    compile_args += ["-O0", "-g"]
    macros += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]
elif SANITIZE:
    # Fuzzers run long. For tests -O1 costs more to compile than it saves: twice the time of -O0.
    compile_args += ["-O1" if FUZZ else "-O0", "-g1"]
else:
    compile_args += ["-O3"]
    if sys.platform == "linux":
        compile_args += ["-fno-semantic-interposition"]
    if MARCH:
        compile_args += [f"-march={MARCH}"]
    else:
        if IS_X86:
            compile_args += [f"-march={PORTABLE_LEVEL}"]
        # Symbols would make up most of a wheel; without -g the compiler takes a third less time.
        compile_args += ["-g0"]
        link_args += ["-Wl,-S,-x" if sys.platform == "darwin" else "-Wl,--strip-all"]
if SANITIZE:
    kinds = "thread" if os.environ["KRAFT_SANITIZE"] == "thread" else "address,undefined"
    sanitizers = [f"-fsanitize={kinds}", "-fno-sanitize-recover=all"]
    if FUZZ:
        sanitizers += ["-fsanitize=fuzzer-no-link"]
    compile_args += [*sanitizers, "-fno-omit-frame-pointer"]
    link_args += sanitizers


def module_name(source: Path) -> str:
    """Return a source's name below the core: ``log.segment``."""
    return ".".join(source.relative_to(CORE).with_suffix("").parts)


def is_built(name: str) -> bool:
    if name in LINUX_ONLY and sys.platform != "linux":
        return False
    return not chosen or name in chosen


chosen = {name for name in os.environ.get("KRAFT_MODULES", "").split(",") if name}
extensions = [
    Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        include_dirs=[numpy.get_include()],
        define_macros=macros,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for source in sorted(CORE.rglob("*.pyx"))
    if is_built(module_name(source))
]


class BuildCore(build_ext):
    """Runs Cython when extensions are built, so that a source distribution contains the .pyx."""

    extensions: list[Any]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.hot_outputs: list[str] = []

    def run(self) -> None:
        if self.parallel is None:
            self.parallel = os.cpu_count() or 1
        made = cythonize(
            self.extensions,
            nthreads=os.cpu_count() or 1,
            quiet=True,
            # `build_ext --force` replaces a build of another kind.
            force=bool(self.force),
            compiler_directives={
                "language_level": "3",
                "boundscheck": DEBUG,
                "wraparound": DEBUG,
                "initializedcheck": DEBUG,
                "cdivision": not DEBUG,
                "linetrace": DEBUG,
                "embedsignature": True,
                "freethreading_compatible": False,
            },
        )
        sources = {compiled.name: compiled.sources for compiled in made}
        for extension in self.extensions:
            extension.sources = sources[extension.name]
        super().run()
        if IS_X86 and not (MARCH or DEBUG or SANITIZE or self.inplace):
            self.build_hot_modules()

    def build_hot_modules(self) -> None:
        """Compile the C sources of the hot modules again, for newer CPUs."""
        names = {extension.name.rpartition(".")[2] for extension in self.extensions}
        if not chosen and not names.issuperset(HOT):
            raise SystemExit(f"setup.py: HOT names modules that do not exist: {set(HOT) - names}")
        self.build_temp = os.path.join(self.build_temp, "v3")
        for extension in self.extensions:
            name = extension.name.removeprefix("kraft._core.")
            if name.rpartition(".")[2] in HOT:
                twin = copy(extension)
                twin.name = twin._full_name = f"kraft._core.v3.{name}"
                twin._file_name = self.get_ext_filename(twin.name)
                twin.extra_compile_args = [*compile_args, f"-march={HOT_LEVEL}"]
                self.ext_map[twin.name] = twin
                self.build_extension(twin)
                self.hot_outputs.append(self.get_ext_fullpath(twin.name))

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), *self.hot_outputs]


setup(ext_modules=extensions, cmdclass={"build_ext": BuildCore})
