package kraft.peers;

/** Runs one program of the peers: {@code java kraft.peers.Peers <program> name=value...}. */
public final class Peers {
    private Peers() { }

    public static void main(String[] args) throws Exception {
        if (args.length == 0) {
            System.err.println("usage: Peers decode|encode|load|fence|changes|heap|place|authorize|metadata-cache|log|quorum|controller-* name=value...");
            System.exit(2);
        }
        Arguments arguments = Arguments.parse(args);
        switch (arguments.program()) {
            case "decode" -> Codec.decode(arguments);
            case "encode" -> Codec.encode(arguments);
            case "load" -> Images.load(arguments);
            case "fence" -> Images.fence(arguments);
            case "changes" -> Images.changes(arguments);
            case "heap" -> Images.heap(arguments);
            case "place" -> Placement.place(arguments);
            case "authorize" -> Authorizers.authorize(arguments);
            case "metadata-cache" -> MetadataCaches.answer(arguments);
            case "log" -> Logs.appendAndRead(arguments);
            case "quorum" -> Quorum.serve(arguments);
            case "controller-create" -> Controllers.create(arguments);
            case "controller-fence" -> Controllers.fence(arguments);
            case "controller-alter" -> Controllers.alter(arguments);
            case "controller-elect" -> Controllers.elect(arguments);
            case "controller-heap" -> Controllers.heap(arguments);
            default -> throw new IllegalArgumentException("no program " + arguments.program());
        }
        System.exit(0);
    }
}
