package kraft.suites;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.Key;
import java.security.KeyStore;
import java.util.Collections;
import java.util.Map;
import org.apache.kafka.common.config.types.Password;

/** Copies of the kits' key stores (JKS) as PKCS12, as an operator of kraft makes them by keytool. */
final class KeyStores {
    private KeyStores() {
    }

    static void convert(Map<String, Object> settings) {
        for (String name : new String[] {"keystore", "truststore"}) {
            Object location = settings.get("ssl." + name + ".location");
            if (location == null || !"JKS".equals(settings.get("ssl." + name + ".type"))) {
                continue;
            }
            char[] password = text(settings.get("ssl." + name + ".password"));
            char[] keyPassword = settings.get("ssl.key.password") == null
                ? password : text(settings.get("ssl.key.password"));
            try {
                Path file = copy(Path.of(location.toString()), password, keyPassword);
                settings.put("ssl." + name + ".location", file.toString());
            } catch (IOException | GeneralSecurityException e) {
                throw new IllegalStateException(location + " cannot be converted", e);
            }
            settings.put("ssl." + name + ".type", "PKCS12");
            if (name.equals("keystore")) {
                settings.put("ssl.key.password", String.valueOf(password));
            }
        }
    }

    // A PKCS12 store has one password, also for its keys.
    private static Path copy(Path file, char[] password, char[] keyPassword)
            throws IOException, GeneralSecurityException {
        KeyStore from = KeyStore.getInstance("JKS");
        try (InputStream in = Files.newInputStream(file)) {
            from.load(in, password);
        }
        KeyStore to = KeyStore.getInstance("PKCS12");
        to.load(null, password);
        for (String alias : Collections.list(from.aliases())) {
            Key key = from.isKeyEntry(alias) ? from.getKey(alias, keyPassword) : null;
            if (key != null) {
                to.setKeyEntry(alias, key, password, from.getCertificateChain(alias));
            } else {
                to.setCertificateEntry(alias, from.getCertificate(alias));
            }
        }
        Path copy = Path.of(file + ".p12");
        try (OutputStream out = Files.newOutputStream(copy)) {
            to.store(out, password);
        }
        return copy;
    }

    private static char[] text(Object password) {
        return password instanceof Password
            ? ((Password) password).value().toCharArray()
            : String.valueOf(password).toCharArray();
    }
}
