import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** An OpenSearch 2 node. Its folder is the one argument; what else it is told stands in config/ there. */
class OpenSearch2 extends Node {
    OpenSearch2(Settings settings) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"),
                List.of(Netty4Plugin.class, ReindexPlugin.class), false);
    }

    public static void main(String[] words) throws Exception {
        var node = new OpenSearch2(Settings.builder().put("path.home", words[0]).build());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try { node.close(); } catch (Exception error) { error.printStackTrace(); }
        }));
        node.start();
        var bound = node.injector().getInstance(HttpServerTransport.class).info().getAddress();
        System.out.println("OpenSearch 2 listens at http://" + bound.publishAddress());
        Thread.currentThread().join();  // its own threads are daemons
    }
}
