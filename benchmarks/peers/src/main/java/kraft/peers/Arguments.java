package kraft.peers;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The command line: the name of the program, then name=value pairs. */
record Arguments(String program, Map<String, String> values) {
    static Arguments parse(String[] args) {
        Map<String, String> values = new HashMap<>();
        for (int i = 1; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            values.put(pair[0], pair[1]);
        }
        return new Arguments(args[0], values);
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) throw new IllegalArgumentException(program + " needs " + name + "=...");
        return value;
    }

    int number(String name, int otherwise) {
        return values.containsKey(name) ? Integer.parseInt(values.get(name)) : otherwise;
    }

    /** Returns the file that an argument names; it is read before timing starts. */
    ByteBuffer bytes(String name) throws IOException {
        return ByteBuffer.wrap(Files.readAllBytes(Path.of(text(name))));
    }
}
