"""The exit codes of every command; they are part of what scripts rely on."""

#: What was asked for was done.
OK = 0
#: Refused: the message on stderr begins with ``error:`` and names file, offset and byte where it
#: can.
REFUSED = 1
#: The command line was not understood.
USAGE = 2
#: Done, and something was found that wants a look: two states differ, a log is torn or damaged.
FOUND = 3
#: Done, and the check failed: a snapshot is damaged, files contradict one another, a threshold is
#: exceeded, a seed fails, something required is missing. stderr has an ``error:`` line.
FAILED = 4
#: Ctrl-C.
INTERRUPTED = 130
#: Whoever read the output stopped reading (128 + SIGPIPE, as of any Unix tool).
BROKEN_PIPE = 141

#: At the end of every command's help.
EPILOG = (
    "[bold]Exit codes[/bold]: 0 done · 1 refused or failed (stderr says why) · 2 wrong usage · "
    "3 done, and found: states that differ, a torn or damaged log, an open transaction · "
    "4 done, and a check failed (stderr says which) · 130 Ctrl-C"
)
