"""Fetch a leader's snapshot once, and print the seconds: for the suite `follow`.

``python -m benchmarks.snapshot_client follow HOST:PORT``   kraft.follow, to its first state
``python -m benchmarks.snapshot_client copy HOST:PORT``     the floor: a bare client that receives
                                                            the parts into one buffer

Each in its own process, after its imports. The bare client sends FetchSnapshot with the same part
size, one at a time, and looks at nothing but the bytes around a part.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

from kraft._core.codec.fetch_snapshot import decode_fetch_snapshot_response
from kraft.live.metadata import follow
from kraft.metadata.quorum_observer import PART_BYTES
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.fetch_snapshot import FETCH_SNAPSHOT, encode_request
from kraft.protocol.headers import read_response_header, request_frame
from kraft.raft.rpc import FetchRequest, FetchResponse, FetchSnapshotRequest
from kraft.raft.voters import ReplicaKey

_VERSION = 1
_READER = ReplicaKey(-1)


def follow_once(endpoint: str) -> int:
    """Return the partitions of the first state."""
    with follow(endpoint) as live:
        return len(live.partitions)


def copy_once(host: str, port: int) -> int:
    """Receive the snapshot into one buffer, each part with the bytes around it; return its size."""
    with QuorumClient([(host, port)]) as client:
        epoch = client.describe_quorum().epoch
        fetched = client.ask(FetchRequest(None, _READER, epoch, 0, 0))
    assert isinstance(fetched, FetchResponse)
    assert fetched.snapshot_id is not None
    buffer = memoryview(bytearray(4))
    begin = done = 0
    size = 1
    with socket.create_connection((host, port)) as leader:
        leader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while done < size:
            request = FetchSnapshotRequest(
                None, _READER, epoch, fetched.snapshot_id, done, PART_BYTES
            )
            body = encode_request(request, _VERSION)
            leader.sendall(request_frame(FETCH_SNAPSHOT, _VERSION, 1, "copy", body))
            head = memoryview(bytearray(4))
            receive(leader, head)
            (length,) = struct.unpack(">i", head)
            if begin + length > len(buffer):
                assert not done, "the buffer is as large as the first part says"
                buffer = memoryview(bytearray(length))
            frame = buffer[begin : begin + length]
            receive(leader, frame)
            _, at = read_response_header(frame, FETCH_SNAPSHOT, _VERSION)
            response = decode_fetch_snapshot_response(frame, _VERSION, at)
            error, size, part = response[0], response[5], response[8]
            assert not error, error
            if not done:
                first = frame
                # Room for all parts, each with as many bytes around it as the first.
                parts = size // part + 2
                buffer = memoryview(bytearray(size + parts * (length - part + 16)))
                buffer[:length] = first
            begin, done = begin + length, done + part
    return int(done)


def receive(leader: socket.socket, into: memoryview) -> None:
    while into:
        received = leader.recv_into(into)
        assert received, "the leader closed the connection"
        into = into[received:]


def main() -> None:
    how, endpoint = sys.argv[1:]
    host, _, port = endpoint.partition(":")
    begin, cpu = time.perf_counter(), time.process_time()
    done = follow_once(endpoint) if how == "follow" else copy_once(host, int(port))
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "done": done}))


if __name__ == "__main__":
    main()
