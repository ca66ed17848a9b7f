import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.server.authorizer.internals.CidrUtils;

/**
 * Prints for each line of standard input whether Kafka 4.4 accepts it as a CIDR pattern; for a line of
 * a pattern, a tab and a host, whether the host is in the pattern's range.
 */
public final class CidrOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            if (fields.length == 2) {
                System.out.println(CidrUtils.isInRange(fields[1], fields[0]));
                continue;
            }
            boolean isValid = true;
            try {
                CidrUtils.validate(line);
            } catch (IllegalArgumentException refused) {
                isValid = false;
            }
            System.out.println(isValid);
        }
    }
}
