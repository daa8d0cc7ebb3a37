"""Producers and consumers that change clusters: after a refusal, or when they are told to."""

import functools
import subprocess
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from heliograph.config.properties import dump
from heliograph.jvm.java import find_java
from heliograph.lab.cluster import DEFAULT_KAFKA_VERSION
from heliograph.lab.lab import tool_command

_JAVA = str(Path(__file__).with_name("ChangingClient.java"))

_LIBRARY = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "bootstrap.servers": "bootstrap.servers",
}


def librdkafka(properties):
    """Keys of a Java client as librdkafka has them."""
    made = {name: properties[key] for key, name in _LIBRARY.items() if key in properties}
    words = properties["sasl.jaas.config"].replace('"', " ").replace(";", " ").split()
    made["sasl.username"] = words[words.index("username=") + 1]
    made["sasl.password"] = words[words.index("password=") + 1]
    return made | {"log_level": 0}


class ChangingProducer(threading.Thread):
    """Numbers records of each partition, writes them in order, and each until it is acknowledged.

    One that is refused is written again, to the same cluster until ``go_to`` names another.
    """

    def __init__(self, topic, counts, properties):
        """``counts``: how many records each partition has got; counted on."""
        super().__init__(daemon=True)
        self._topic, self._partitions = topic, len(counts)
        self._properties = properties
        self._stopping = threading.Event()
        self.counts = counts
        self._refused_at = None
        #: How long nothing could be written, each time.
        self.pauses = []

    def go_to(self, properties):
        self._properties = properties

    def run(self):
        at, producer = None, None
        while not self._stopping.wait(0.02):
            if self._properties is not at:
                at = self._properties
                producer = Producer(librdkafka(at) | {"acks": "all", "linger.ms": 2})
            refused = self._write(producer)
            if refused:
                self._refused_at = self._refused_at or time.monotonic()
            elif self._refused_at is not None:
                self.pauses.append(time.monotonic() - self._refused_at)
                self._refused_at = None

    def _write(self, producer):
        """One record for each partition; those that are acknowledged count."""
        codes = {}

        def delivered(partition):
            def tell(error, _message):
                codes[partition] = error

            return tell

        for p in range(self._partitions):
            value = b"%d-%d" % (p, self.counts[p])
            try:
                producer.produce(self._topic, value, partition=p, on_delivery=delivered(p))
            except KafkaException as refused:
                codes[p] = refused.args[0]
        producer.flush()
        for p, error in codes.items():
            if error is None:
                self.counts[p] += 1
            else:
                assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
        return any(codes.values())

    def stop(self):
        self._stopping.set()
        self.join(60)


class ChangingConsumer(threading.Thread):
    """A member of a group: keeps what numbers it reads, and commits at once."""

    def __init__(self, group, topic, numbers, properties):
        """``numbers``: what was read of each partition, in order; added to."""
        super().__init__(daemon=True)
        self._group, self._topic = group, topic
        self._wanted = properties
        self._here = None
        self._stopping = threading.Event()
        self.numbers = numbers

    def go_to(self, properties):
        """Returns when it has left the group on the old side."""
        self._wanted = properties
        deadline = time.monotonic() + 60
        while self._here is not properties:
            assert time.monotonic() < deadline and self.is_alive()
            time.sleep(0.02)

    def run(self):
        while not self._stopping.is_set():
            here = self._wanted
            consumer = Consumer(librdkafka(here) | {
                "group.id": self._group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "isolation.level": "read_committed",
            })  # fmt: skip
            consumer.subscribe([self._topic])
            self._here = here
            while self._wanted is here and not self._stopping.is_set():
                self._take(consumer)
            consumer.close()

    def _take(self, consumer):
        messages = consumer.consume(500, 0.1)
        for message in messages:
            assert message.error() is None, message.error()
            number = message.value().partition(b"-")[2]
            if number:
                self.numbers[message.partition()].append(int(number))
        if messages:
            consumer.commit(asynchronous=False)

    def stop(self):
        self._stopping.set()
        self.join(60)


@functools.cache
def java_compiles():
    """Whether Java can run a program from its source: a JDK can, a JRE cannot."""
    listed = subprocess.run(
        [find_java(), "--list-modules"], capture_output=True, text=True, check=True, timeout=300
    )
    return "jdk.compiler" in listed.stdout


class JavaClients:
    """A ChangingProducer and a ChangingConsumer with Java's own client, in one JVM."""

    def __init__(self, group, topic, counts, numbers, folder):
        """``counts``, ``numbers``: as those of the others."""
        command = tool_command(
            DEFAULT_KAFKA_VERSION, folder, _JAVA, [topic, str(len(counts)), group]
        )
        self._folder, self._files = folder, 0
        self.counts, self.numbers = counts, numbers
        self.pauses = []
        self._last = None
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self._said = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def consume(self, properties):
        """Returns when the member has left the group on the old side."""
        file = self._file(properties)
        self._say(f"consume {file}", f"consumes {file}")

    def produce(self, properties):
        self._say(f"produce {self._file(properties)}")

    def rest(self):
        """Returns when nothing is written any more."""
        self._say("rest", "rests")

    def is_alive(self):
        return self._process.poll() is None

    def stop(self):
        if self.is_alive():
            self._say("stop")
        self._process.stdin.close()
        try:
            code = self._process.wait(60)
        finally:
            self._process.kill()
            self._listener.join(60)
        assert code == 0, "".join(self._said)

    def _file(self, properties):
        self._files += 1
        file = self._folder / f"java-client-{self._files}.properties"
        file.write_text(dump(properties))
        return file

    def _say(self, command, answer=None):
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        deadline = time.monotonic() + 120
        while answer is not None and self._last != answer:
            assert time.monotonic() < deadline and self.is_alive(), "".join(self._said)
            time.sleep(0.02)

    def _listen(self):
        for line in self._process.stdout:
            verb, *words = line.split()
            if verb == "wrote":
                partition, number = map(int, words)
                assert number == self.counts[partition]
                self.counts[partition] += 1
            elif verb == "read":
                partition, number = map(int, words)
                self.numbers[partition].append(number)
            elif verb == "paused":
                self.pauses.append(float(words[0]))
            elif verb in ("consumes", "rests"):
                self._last = line.strip()
            else:  # the client's log, or a stack trace
                self._said.append(line)
        self._process.stdout.close()
