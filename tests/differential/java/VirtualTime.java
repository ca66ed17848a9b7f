package org.apache.kafka.controller;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A virtual clock that the test advances; event queues read it from their threads. */
final class VirtualTime implements Time {
    volatile long nowMs = 1_000_000;

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * 1_000_000;
    }

    @Override
    public synchronized void sleep(long ms) {
        nowMs += ms;
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nothing waits here");
    }
}
