"""Syntax check of Java regular expressions, which match the clients of client metrics.

Implements the grammar of ``java.util.regex.Pattern`` as far as it rejects a text: groups, classes,
repetitions, escapes. It never runs an expression. Where Java looks up a name (scripts, blocks,
properties), every name of letters is accepted. Called by ``config_validation``.
"""

from __future__ import annotations

import re

_POSIX = (
    "Lower|Upper|ASCII|Alpha|Digit|Alnum|Punct|Graph|Print|Blank|Cntrl|XDigit|Space|all|LC|LD|L1"
    "|C[cfons]?|L[ulmto]?|M[nec]?|N[dlo]?|P[dsecoif]?|S[mcko]?|Z[slp]?"
)
_PROPERTY = re.compile(
    rf"[pP](?:[CLMNPSZ]|\{{(?:{_POSIX}|java[A-Z]\w+|I[ns]\w[\w -]*"
    r"|(?:sc|script|blk|block)=\w[\w -]*|(?:gc|general_category)=\w+)\})",
    re.ASCII | re.DOTALL,
)
_ESCAPE = re.compile(
    r"0(?:[0-3][0-7]{0,2}|[4-7][0-7]?)|x[0-9a-fA-F]{2}|x\{(?=0*[0-9a-fA-F]{1,6}\})[0-9a-fA-F]+\}"
    r"|u[0-9a-fA-F]{4}|c.|N\{[A-Z][A-Z0-9 -]*\}|[tnrfaedDhHsSvVwW]|[^a-zA-Z0-9]",
    re.ASCII | re.DOTALL,
)
# Not allowed in a class: boundaries, references, and escapes of more than one character.
_ESCAPE_OUTSIDE = re.compile(r"b\{g\}|[bBAGZzRX1-9]", re.ASCII)
_REFERENCE = re.compile(r"k<([a-zA-Z][a-zA-Z0-9]*)>", re.ASCII)
_GROUP = re.compile(r"\?(?:[:=!>]|<[=!]|<([a-zA-Z][a-zA-Z0-9]*)>)", re.ASCII)
_FLAGS = re.compile(r"\?[idmsuxU]*(?:-[idmsuxU]*)?([:)])", re.ASCII)
_REPEATED = re.compile(r"(?:[*+?]|\{([0-9]{1,9})(,([0-9]{1,9})?)?\})[?+]?", re.ASCII)
_DEEPEST = 100


class _RefusedPatternError(ValueError):
    """The text is not a regular expression."""


def is_java_pattern(text: str) -> bool:
    """Return whether ``Pattern.compile`` accepts ``text``; more than 100 nested groups are rejected
    here.
    """
    reader = _PatternReader(text)
    try:
        reader.alternatives(0)
    except _RefusedPatternError:
        return False
    return reader.at == len(text)


class _PatternReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.names: set[str] = set()

    def alternatives(self, depth: int) -> None:
        """Read up to the parenthesis that closes the enclosing group, or to the end."""
        if depth > _DEEPEST:
            raise _RefusedPatternError
        text, may_repeat = self.text, False
        while self.at < len(text) and text[self.at] != ")":
            mark = text[self.at]
            if mark in "*+?" or mark == "{":
                # A repetition in braces may follow another repetition; the other signs may not.
                if mark != "{" and not may_repeat:
                    raise _RefusedPatternError
                self._repetition()
                may_repeat = False
                continue
            self.at += 1
            may_repeat = mark != "|"
            if mark == "[":
                self._class(depth + 1)
            elif mark == "(":
                may_repeat = self._group(depth + 1)
            elif mark == "\\":
                self._escape()

    def _repetition(self) -> None:
        found = _REPEATED.match(self.text, self.at)
        if found is None:
            raise _RefusedPatternError
        lowest, _, highest = found.groups()
        if highest is not None and int(highest) < int(lowest):
            raise _RefusedPatternError
        self.at = found.end()

    def _group(self, depth: int) -> bool:
        if self.text.startswith("?", self.at):
            found = _GROUP.match(self.text, self.at)
            if found is None:
                found = _FLAGS.match(self.text, self.at)
                if found is None:
                    raise _RefusedPatternError
                self.at = found.end()
                if found[1] == ")":
                    return False
            else:
                if found[1] in self.names:
                    raise _RefusedPatternError
                if found[1] is not None:
                    self.names.add(found[1])
                self.at = found.end()
        self.alternatives(depth)
        if not self.text.startswith(")", self.at):
            raise _RefusedPatternError
        self.at += 1
        return True

    def _escape(self) -> None:
        text = self.text
        if text.startswith("Q", self.at):
            end = text.find("\\E", self.at)
            self.at = len(text) if end < 0 else end + 2
            return
        found = _REFERENCE.match(text, self.at)
        if found is not None and found[1] not in self.names:
            raise _RefusedPatternError
        found = found or _ESCAPE_OUTSIDE.match(text, self.at)
        if found is None:
            self._escape_of_one()
        else:
            self.at = found.end()

    def _escape_of_one(self) -> None:
        found = _PROPERTY.match(self.text, self.at) or _ESCAPE.match(self.text, self.at)
        if found is None:
            raise _RefusedPatternError
        self.at = found.end()

    def _class(self, depth: int) -> None:
        """Read a class after its opening bracket, up to the closing one."""
        if depth > _DEEPEST:
            raise _RefusedPatternError
        text = self.text
        if text.startswith("^", self.at):
            self.at += 1
        is_first = True
        while self.at < len(text):
            mark = text[self.at]
            if mark == "]" and not is_first:
                self.at += 1
                return
            if mark == "[":
                self.at += 1
                self._class(depth + 1)
            elif text.startswith("&&", self.at):
                self.at += 2
                continue
            else:
                self._range()
            is_first = False
        raise _RefusedPatternError

    def _range(self) -> None:
        lowest = self._one_of_class()
        if not self.text.startswith("-", self.at) or self.text[self.at + 1 : self.at + 2] in "[]":
            return
        self.at += 1
        if self.text[self.at : self.at + 2] in ("\\p", "\\P"):
            raise _RefusedPatternError
        highest = self._one_of_class()
        if lowest is not None and highest is not None and highest < lowest:
            raise _RefusedPatternError

    def _one_of_class(self) -> str | None:
        """Read and return one character; None if it stands for several or is escaped."""
        mark = self.text[self.at : self.at + 1]
        self.at += 1
        if mark != "\\":
            return mark
        begin = self.at
        self._escape_of_one()
        written = self.text[begin : self.at]
        return written if len(written) == 1 and not written.isalnum() else None
