package kraft.suites;

import org.opentest4j.TestAbortedException;

/** A test requested an object that exists only inside the JVM of a controller. */
public final class NotApplicable extends TestAbortedException {
    public NotApplicable(String reason) {
        super("not applicable: " + reason);
    }
}
