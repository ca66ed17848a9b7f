"""Whether a change of a running quorum will work: facts, rules over them, findings.

``gathering`` asks the controllers, and reads given directories; it changes nothing. The rules are
pure functions of the facts and of the planned change. Called by ``kraft preflight``.
"""
