import java.io.FileOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A resource manager and two node managers; writes yarn-site.xml into the folder given, and runs until killed. */
public class YarnCluster {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new YarnConfiguration();
        conf.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        conf.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
        conf.set("yarn.scheduler.capacity.root.queues", "default");
        conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
        conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
        MiniYARNCluster cluster = new MiniYARNCluster("yarn", 2, 1, 1);
        cluster.init(conf);
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(300_000)) {
            throw new IllegalStateException("the node managers did not register");
        }
        Path fresh = Path.of(arguments[0], "fresh");
        try (FileOutputStream out = new FileOutputStream(fresh.toFile())) {
            cluster.getConfig().writeXml(out);
        }
        Files.move(fresh, Path.of(arguments[0], "yarn-site.xml"), StandardCopyOption.ATOMIC_MOVE);
        Thread.currentThread().join();
    }
}
