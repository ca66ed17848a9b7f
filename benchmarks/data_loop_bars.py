"""The rows of the suite `data_loop`: a broker's plain connections over loopback."""

from __future__ import annotations

from benchmarks.conditions import Row, at_least, share_of

_WORK = (
    "40 us of Python work a request, none in the floor; of two cores sender and Python share one"
)

DATA_LOOP_ROWS = (
    Row(
        "fetch 1 MiB from the page cache, one connection",
        "data_loop_fetch",
        "copied_fetch",
        (share_of("sendfile_fetch", 0.80), at_least(1)),
        floor="sendfile_fetch",
        note=f"{_WORK}; the peer: uvloop's transport with a copy of the file",
    ),
    Row(
        "the first, without the Python work",
        "data_loop_fetch_idle",
        "copied_fetch",
        (share_of("sendfile_fetch", 0.80),),
        floor="sendfile_fetch",
    ),
    Row(
        "the first, two requests ahead",
        "data_loop_fetch_ahead",
        None,
        (),
        floor="sendfile_fetch_ahead",
        note=_WORK,
    ),
    Row(
        "the first, four connections",
        "data_loop_fetch_four",
        None,
        (),
        floor="sendfile_fetch_four",
        note=_WORK,
    ),
    Row(
        "small requests on 50 connections, beside uvloop",
        "small_requests_50_data_loop",
        "small_requests_50_uvloop",
        (at_least(1),),
        floor=None,
    ),
    Row(
        "small requests on one connection, beside uvloop",
        "small_requests_one_data_loop",
        "small_requests_one_uvloop",
        (),
        floor=None,
        note="two threads hand over every request",
    ),
)
