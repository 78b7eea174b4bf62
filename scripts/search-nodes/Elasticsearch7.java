import java.util.List;
import java.util.Map;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.http.HttpServerTransport;
import org.elasticsearch.reindex.ReindexPlugin;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.transport.Netty4Plugin;

/** An Elasticsearch 7 node. Its folder is the one argument; what else it is told stands in config/ there. */
class Elasticsearch7 extends Node {
    Elasticsearch7(Settings settings) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"),
                List.of(Netty4Plugin.class, ReindexPlugin.class), false);
    }

    public static void main(String[] words) throws Exception {
        var node = new Elasticsearch7(Settings.builder().put("path.home", words[0]).build());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try { node.close(); } catch (Exception error) { error.printStackTrace(); }
        }));
        node.start();
        var bound = node.injector().getInstance(HttpServerTransport.class).info().getAddress();
        System.out.println("Elasticsearch 7 listens at http://" + bound.publishAddress());
        Thread.currentThread().join();  // its own threads are daemons
    }
}
