"""Works whose instructions are counted: what a change costs, on a machine however noisy.

Every work is small (50,000 partitions), runs once under callgrind, and gives the same number each
time, because nothing in it is left to chance: its input is seeded, hashes are, the garbage
collector rests, and valgrind lays out memory and emulates a processor of its own, whatever the
machine has. The core is compiled once more for that processor (``-march=x86-64-v3``), so that what
depends on AVX2 is counted too. Two toolchains still count differently: the compiler, the libraries
and the interpreter are part of the result and are recorded as its machine.

``work``       what a work is, and the table of all
``works``      the works: those of the ``core``, of ``deciding``, of the ``quorum``
``toolchain``  what the counts depend on, and the copy of the core that is counted
``callgrind``  a process under valgrind that is told when to count
``process``    the counted process itself: each work in a fork of its own
``suite``      the works as a pytest-benchmark suite: instructions beside times
``check``      may a result be compared with a baseline, and how closely

Instructions are no time: a cache miss costs hundreds of cycles and counts as one instruction, and
the kernel's part of a work is not seen. They answer one question, and reliably: does a work do
more than before?
"""
