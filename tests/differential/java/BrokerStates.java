package org.apache.kafka.controller;

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.utils.LogContext;

/**
 * Answers each line with the state of a broker in Kafka's BrokerHeartbeatManager, its state after its
 * heartbeat, and the lowest offset of the active brokers.
 *
 * <pre>
 * EVENT,... ID:OFFSET:WANT_FENCE:WANT_SHUT_DOWN:REGISTERED_AT:LEADS
 *
 * EVENT  r:ID:FENCED         the broker registers    c:ID:FENCED  its registration changes
 *        h:ID:FENCED:OFFSET  a heartbeat is applied  f:ID         its session has expired
 *        s:ID:OFFSET         controlled shutdown; its leaderships were moved up to OFFSET
 *        u:ID                the broker is unregistered
 * </pre>
 */
public final class BrokerStates {
    private static final LogContext LOG = new LogContext();

    private BrokerStates() { }

    private static String answer(String[] words) {
        BrokerHeartbeatManager manager =
            new BrokerHeartbeatManager(LOG, new VirtualTime(), 9_000_000_000L);
        for (String event : words[0].split(",")) {
            String[] fields = event.split(":");
            int id = Integer.parseInt(fields[1]);
            switch (fields[0]) {
                case "r" -> {
                    manager.remove(id);
                    manager.register(id, fields[2].equals("1"));
                }
                case "c" -> manager.register(id, fields[2].equals("1"));
                case "h" -> manager.touch(id, fields[2].equals("1"), Long.parseLong(fields[3]));
                case "f" -> manager.fence(id);
                case "s" -> manager.maybeUpdateControlledShutdownOffset(id, Long.parseLong(fields[2]));
                case "u" -> manager.remove(id);
                default -> throw new IllegalArgumentException(event);
            }
        }
        String[] asked = words[1].split(":");
        int id = Integer.parseInt(asked[0]);
        BrokerHeartbeatRequestData request = new BrokerHeartbeatRequestData()
            .setBrokerId(id)
            .setCurrentMetadataOffset(Long.parseLong(asked[1]))
            .setWantFence(asked[2].equals("1"))
            .setWantShutDown(asked[3].equals("1"));
        BrokerControlStates states = manager.calculateNextBrokerState(
            id, request, Long.parseLong(asked[4]), () -> asked[5].equals("1"));
        return states.current() + " " + states.next() + " " + manager.lowestActiveOffset();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers =
            new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.US_ASCII);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.append(answer(line.split(" "))).append('\n');
            if (!lines.ready()) {
                answers.flush();
            }
        }
        answers.flush();
    }
}
