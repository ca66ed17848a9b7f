package kraft.peers;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Times one work on the calling thread and prints one line of JSON.
 *
 * Warm-up runs come first and are not counted: during them C2 compiles the hot loops and the heap
 * reaches its size. Garbage collections during a counted run are part of it, as in a node.
 */
final class Measure {
    /** One run of the work; its result is kept alive, so that nothing is optimised away. */
    interface Work {
        Object run() throws Exception;
    }

    /** Untimed steps around a run. */
    interface Step {
        void run() throws Exception;
    }

    /** CPU time of all threads, compiler and collector included, in steps of 10 ms. */
    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    static volatile Object sink;

    private final int warmup;
    private final int iterations;

    /** The number of rounds and warm-up rounds of kraft for the same work. */
    Measure(Arguments arguments) {
        warmup = arguments.number("warmup", 10);
        iterations = arguments.number("iterations", 20);
    }

    void time(String name, String unit, long count, long bytes, Work work) throws Exception {
        time(name, unit, count, bytes, Map.of(), () -> { }, work, () -> { });
    }

    void time(String name, String unit, long count, long bytes, Map<String, Object> more, Work work)
            throws Exception {
        time(name, unit, count, bytes, more, () -> { }, work, () -> { });
    }

    void time(
        String name,
        String unit,
        long count,
        long bytes,
        Map<String, Object> more,
        Step before,
        Work work,
        Step after
    ) throws Exception {
        long[] nanos = new long[iterations];
        long cpuNanos = 0;
        for (int i = -warmup; i < iterations; i++) {
            before.run();
            long cpuStart = PROCESS.getProcessCpuTime();
            long start = System.nanoTime();
            sink = work.run();
            long taken = System.nanoTime() - start;
            if (i >= 0) {
                nanos[i] = taken;
                cpuNanos += PROCESS.getProcessCpuTime() - cpuStart;
            }
            sink = null;
            after.run();
        }
        Map<String, Object> line = line(name, unit, count, bytes);
        line.put("values_s", seconds(nanos));
        Arrays.sort(nanos);
        line.put("median_s", (nanos[(iterations - 1) / 2] + nanos[iterations / 2]) / 2e9);
        line.put("best_s", nanos[0] / 1e9);
        line.put("worst_s", nanos[iterations - 1] / 1e9);
        line.put("cpu_s", cpuNanos / 1e9 / iterations);
        line.put("iterations", iterations);
        line.put("warmup", warmup);
        line.putAll(more);
        print(line);
    }

    /** Every round's time in seconds, in the order of the rounds. */
    static double[] seconds(long[] nanos) {
        return Arrays.stream(nanos).mapToDouble(each -> each / 1e9).toArray();
    }

    static Map<String, Object> line(String name, String unit, long count, long bytes) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("work", name);
        line.put("unit", unit);
        line.put("count", count);
        line.put("bytes", bytes);
        line.put("heap", Runtime.getRuntime().maxMemory());
        line.put("gc", ManagementFactory.getGarbageCollectorMXBeans().stream()
            .map(GarbageCollectorMXBean::getName).collect(Collectors.joining(", ")));
        line.put("java", Runtime.version().toString());
        line.put("kafka", org.apache.kafka.common.utils.AppInfoParser.getVersion());
        return line;
    }

    static void print(Map<String, Object> line) {
        System.out.println(line.entrySet().stream()
            .map(e -> '"' + e.getKey() + "\":" + json(e.getValue()))
            .collect(Collectors.joining(",", "{", "}")));
    }

    private static String json(Object value) {
        if (value instanceof double[] values) return Arrays.toString(values);
        return value instanceof Number ? value.toString() : '"' + value.toString() + '"';
    }
}
