import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.opensearch.Version;
import org.opensearch.common.settings.Settings;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.index.reindex.ReindexModulePlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.plugins.PluginInfo;
import org.opensearch.transport.Netty4ModulePlugin;

/** An OpenSearch 3 node. Its folder is the one argument; what else it is told stands in config/ there. */
class OpenSearch3 extends Node {
    OpenSearch3(Settings settings) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"),
                Stream.of(Netty4ModulePlugin.class, ReindexModulePlugin.class).map(OpenSearch3::described).toList(), false);
    }

    private static PluginInfo described(Class<? extends Plugin> plugin) {
        return new PluginInfo(plugin.getName(), "", "NA", Version.CURRENT, "21", plugin.getName(), null, List.of(), false);
    }

    public static void main(String[] words) throws Exception {
        var node = new OpenSearch3(Settings.builder().put("path.home", words[0]).build());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try { node.close(); } catch (Exception error) { error.printStackTrace(); }
        }));
        node.start();
        var bound = node.injector().getInstance(HttpServerTransport.class).info().getAddress();
        System.out.println("OpenSearch 3 listens at http://" + bound.publishAddress());
        Thread.currentThread().join();  // its own threads are daemons
    }
}
