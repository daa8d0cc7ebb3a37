import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;
import org.apache.kafka.connect.mirror.ReplicationPolicy;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.regex.Pattern;

/**
 * Asks the real MirrorClient, RemoteClusterUtils and replication policies what the test asks ours.
 *
 * Reads questions as JSON on standard input, {"client": {...}, "policies": {...}}, and prints the
 * answers as one line of JSON. Run from source: java -cp ... MirrorClientProbe.java
 */
public class MirrorClientProbe {
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode asked = json.readTree(System.in);
        Map<String, Object> answers = new HashMap<>();
        if (asked.has("client"))
            answers.put("client", client(asked.get("client")));
        if (asked.has("policies"))
            answers.put("policies", policies(asked.get("policies")));
        System.out.println(json.writeValueAsString(answers));
    }

    private static Map<String, Object> client(JsonNode asked) throws Exception {
        Map<String, Object> properties = texts(asked.get("properties"));
        Map<String, Object> answers = new HashMap<>();
        try (MirrorClient client = new MirrorClient(properties)) {
            Map<String, Integer> hops = new HashMap<>();
            Map<String, Object> remote = new HashMap<>();
            Map<String, Object> byId = new HashMap<>();
            Map<String, Object> byPattern = new HashMap<>();
            Map<String, Object> translated = new HashMap<>();
            Map<String, Object> translatedByPattern = new HashMap<>();
            for (JsonNode node : asked.get("aliases")) {
                String alias = node.asText();
                hops.put(alias, client.replicationHops(alias));
                remote.put(alias, client.remoteTopics(alias));
            }
            for (JsonNode node : asked.get("groups")) {
                String alias = node.get(0).asText();
                String group = node.get(1).asText();
                String name = alias + "/" + group;
                byId.put(name, attempt(() -> rows(client.remoteConsumerOffsets(group, alias, TIMEOUT))));
                translated.put(name, attempt(() -> rows(
                    RemoteClusterUtils.translateOffsets(properties, alias, group, TIMEOUT))));
            }
            for (JsonNode node : asked.get("patterns")) {
                String alias = node.get(0).asText();
                Pattern pattern = Pattern.compile(node.get(1).asText());
                String name = alias + "/" + pattern;
                byPattern.put(name, attempt(() -> groups(client.remoteConsumerOffsets(pattern, alias, TIMEOUT))));
                translatedByPattern.put(name, attempt(() -> groups(
                    RemoteClusterUtils.translateOffsets(properties, alias, pattern, TIMEOUT))));
            }
            answers.put("hops", hops);
            answers.put("remoteFrom", remote);
            answers.put("remote", client.remoteTopics());
            answers.put("upstream", client.upstreamClusters());
            answers.put("heartbeats", client.heartbeatTopics());
            answers.put("checkpoints", client.checkpointTopics());
            answers.put("byId", byId);
            answers.put("byPattern", byPattern);
            answers.put("translated", translated);
            answers.put("translatedByPattern", translatedByPattern);
        }
        return answers;
    }

    /** The answer, or the name of the exception. */
    private static Object attempt(Callable<Object> call) {
        try {
            return call.call();
        } catch (Exception e) {
            return e.getClass().getName();
        }
    }

    private static List<List<Object>> rows(Map<TopicPartition, OffsetAndMetadata> offsets) {
        List<List<Object>> rows = new ArrayList<>();
        offsets.forEach((where, at) ->
            rows.add(List.of(where.topic(), where.partition(), at.offset(), at.metadata())));
        return rows;
    }

    private static Map<String, Object> groups(Map<String, Map<TopicPartition, OffsetAndMetadata>> found) {
        Map<String, Object> groups = new HashMap<>();
        found.forEach((group, offsets) -> groups.put(group, rows(offsets)));
        return groups;
    }

    private static List<Object> policies(JsonNode asked) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (JsonNode properties : asked.get("properties")) {
            Map<String, Object> values = texts(properties);
            ReplicationPolicy policy = (ReplicationPolicy) Class
                .forName((String) values.get("replication.policy.class"))
                .getDeclaredConstructor().newInstance();
            ((Configurable) policy).configure(values);
            Map<String, Object> names = new HashMap<>();
            for (JsonNode node : asked.get("topics")) {
                String topic = node.asText();
                List<Object> row = new ArrayList<>();
                row.add(policy.formatRemoteTopic("A", topic));
                row.add(policy.topicSource(topic));
                row.add(policy.upstreamTopic(topic));
                row.add(policy.originalTopic(topic));
                row.add(policy.isHeartbeatsTopic(topic));
                row.add(policy.isCheckpointsTopic(topic));
                row.add(policy.isMM2InternalTopic(topic));
                row.add(policy.isInternalTopic(topic));
                names.put(topic, row);
            }
            names.put("", List.of(policy.heartbeatsTopic(), policy.offsetSyncsTopic("B"),
                policy.checkpointsTopic("A")));
            answers.add(names);
        }
        return answers;
    }

    private static Map<String, Object> texts(JsonNode node) {
        Map<String, Object> found = new HashMap<>();
        node.fields().forEachRemaining(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }
}
