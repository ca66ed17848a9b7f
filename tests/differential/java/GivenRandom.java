package org.apache.kafka.controller;

import java.security.Provider;
import java.security.SecureRandomSpi;
import java.security.Security;
import java.util.Random;

/**
 * The source of every SecureRandom of this process, so that the ids that Kafka draws (Uuid.randomUuid)
 * are those of the case: first the bytes of {@link #give}, then a fixed sequence.
 */
public final class GivenRandom extends SecureRandomSpi {
    private static byte[] given = new byte[0];
    private static int used = 0;
    private static final Random REST = new Random(1);

    static void install() {
        Provider provider = new Provider("Given", "1", "the random bytes of a case") { };
        provider.put("SecureRandom.Given", GivenRandom.class.getName());
        Security.insertProviderAt(provider, 1);
    }

    static synchronized void give(byte[] bytes) {
        given = bytes;
        used = 0;
    }

    /** Returns how many of the given bytes are unused. */
    static synchronized int left() {
        return given.length - used;
    }

    @Override
    protected void engineSetSeed(byte[] seed) { }

    @Override
    protected void engineNextBytes(byte[] bytes) {
        fill(bytes);
    }

    private static synchronized void fill(byte[] bytes) {
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = used < given.length ? given[used++] : (byte) REST.nextInt();
        }
    }

    @Override
    protected byte[] engineGenerateSeed(int count) {
        return new byte[count];
    }
}
