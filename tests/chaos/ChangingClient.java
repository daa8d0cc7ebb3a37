import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

/**
 * A producer and a group member of the Java client. Both change clusters when they are told to.
 *
 * Arguments: topic, number of partitions, group. Each line of standard input is a command:
 * "consume FILE" and "produce FILE" go on at the cluster that the properties file names, "rest" ends
 * the writing, "stop" ends the program. Each line of standard output is an event: "consumes FILE"
 * when the member has left its old cluster, "rests" when nothing is written any more, "wrote P N" and
 * "read P N" for each record, "paused SECONDS" after a time in which nothing could be written.
 * Record N of partition P has the value "P-N".
 *
 * Run from source: java -cp ... ChangingClient.java TOPIC PARTITIONS GROUP
 */
public class ChangingClient {
    private static volatile String consumeAt;
    private static volatile String produceAt;
    private static volatile boolean stopping;

    public static void main(String[] args) throws Exception {
        String topic = args[0];
        int partitions = Integer.parseInt(args[1]);
        Thread consumer = started(() -> consume(topic, args[2]));
        Thread producer = started(() -> produce(topic, partitions));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; !stopping && (line = commands.readLine()) != null; ) {
            String[] words = line.split(" ", 2);
            switch (words[0]) {
                case "consume" -> consumeAt = words[1];
                case "produce" -> produceAt = words[1];
                case "rest" -> produceAt = null;
                case "stop" -> stopping = true;
                default -> throw new IllegalArgumentException(line);
            }
        }
        stopping = true;
        consumer.join();
        producer.join();
    }

    private interface Work {
        void run() throws Exception;
    }

    /** What fails ends the program with a stack trace: the test sees that nothing comes any more. */
    private static Thread started(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        thread.start();
        return thread;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static Properties properties(String file) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            properties.load(in);
        }
        return properties;
    }

    private static void consume(String topic, String group) throws Exception {
        while (!stopping) {
            String here = consumeAt;
            if (here == null) {
                Thread.sleep(20);
                continue;
            }
            Properties properties = properties(here);
            properties.put("group.id", group);
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.put("isolation.level", "read_committed");
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                    properties, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                say("consumes " + here);
                while (here.equals(consumeAt) && !stopping) {
                    var records = consumer.poll(Duration.ofMillis(100));
                    for (ConsumerRecord<String, String> record : records)
                        say("read " + record.value().replace('-', ' '));
                    if (!records.isEmpty())
                        consumer.commitSync();
                }
            }
        }
    }

    /** One record for each partition in turn; those that are refused are written again. */
    @SuppressWarnings("unchecked")
    private static void produce(String topic, int partitions) throws Exception {
        String at = null;
        KafkaProducer<String, String> producer = null;
        long[] numbers = new long[partitions];
        long refusedAt = 0;
        while (!stopping) {
            Thread.sleep(20);
            String here = produceAt;
            if (here == null && producer != null)
                say("rests");
            if (here == null || !here.equals(at)) {
                if (producer != null)
                    producer.close();
                at = here;
                producer = null;
            }
            if (here == null)
                continue;
            if (producer == null)
                producer = new KafkaProducer<>(properties(at), new StringSerializer(), new StringSerializer());
            Future<RecordMetadata>[] sent = new Future[partitions];
            for (int p = 0; p < partitions; p++)
                sent[p] = producer.send(new ProducerRecord<>(topic, p, null, p + "-" + numbers[p]));
            boolean refused = false;
            for (int p = 0; p < partitions; p++) {
                try {
                    sent[p].get();
                    say("wrote " + p + " " + numbers[p]++);
                } catch (ExecutionException e) {
                    if (!(e.getCause() instanceof TopicAuthorizationException))
                        throw e;
                    refused = true;
                }
            }
            if (refused) {
                refusedAt = refusedAt == 0 ? System.nanoTime() : refusedAt;
            } else if (refusedAt != 0) {
                say("paused " + (System.nanoTime() - refusedAt) / 1e9);
                refusedAt = 0;
            }
        }
        if (producer != null)
            producer.close();
    }
}
