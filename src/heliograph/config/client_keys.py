"""The key table, part two: keys of Kafka's clients, and keys of a Connect worker."""

from __future__ import annotations

from functools import partial

from heliograph.config.key import Key, Scope, Shown, Status, Type

__all__ = ["CLIENT_KEYS", "WORKER_KEYS"]

ROLES = ("consumer", "producer", "admin")
_OWN_CLIENT = "A setting of the Java client; Heliograph has its own."

# MM2's CLIENT_CONFIG_DEF: may be written x, A.x, A.consumer.x ...
_common = partial(Key, scope=Scope.CLIENT, roles=ROLES, common=True)
_quiet = partial(_common, status=Status.ACCEPTED, importance="low")


def _java(role: tuple[str, ...], names: str) -> tuple[Key, ...]:
    return tuple(
        Key(name, Type.STRING, _OWN_CLIENT, Scope.CLIENT, status=Status.ACCEPTED, roles=role,
            importance="low")
        for name in names.split()
    )  # fmt: skip


def _worker(names: str, doc: str, *, top_level: bool) -> tuple[Key, ...]:
    return tuple(
        Key(name, Type.STRING, doc, Scope.WORKER, status=Status.ACCEPTED, importance="low",
            top_level=top_level)
        for name in names.split()
    )  # fmt: skip


_high, _medium, _low = (partial(Shown, "SCH", 200, level) for level in ("HIGH", "MEDIUM", "LOW"))
_KERBEROS = "Kerberos is not offered by sasl.mechanism here."
_OAUTH = "org.apache.kafka.common.security.oauthbearer"

# In the order in which Kafka has them.
_COMMON_KEYS: tuple[Key, ...] = (
    _common("bootstrap.servers", Type.LIST, "host:port list to find the cluster by.",
            importance="high"),
    _common("security.protocol", Type.STRING, "How to talk to brokers.", default="PLAINTEXT",
            allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), ignore_case=True,
            shown=_medium()),
    Key("config.providers", Type.LIST, "A connector may use those that the worker's file declares.",
        Scope.CLIENT, status=Status.ACCEPTED, roles=ROLES, importance="low",
        shown=_low(default="")),
    _quiet("ssl.protocol", Type.STRING, _OWN_CLIENT, shown=_medium(default="TLSv1.3")),
    _quiet("ssl.provider", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _common("ssl.cipher.suites", Type.LIST,
            "Cipher suites that may be used, by their IANA names. Empty: OpenSSL's choice.",
            shown=_low(default="")),
    _common("ssl.enabled.protocols", Type.LIST,
            "TLS versions that may be used, of TLSv1.2 and TLSv1.3; older ones never are.",
            mm2_default="TLSv1.2,TLSv1.3", shown=_medium(default="TLSv1.2,TLSv1.3")),
    _common("ssl.keystore.type", Type.STRING, "Its format.", allowed=("JKS", "PKCS12", "PEM"),
            ignore_case=True, shown=_medium(default="JKS")),
    _common("ssl.keystore.location", Type.STRING, "File of the client's certificate and key.",
            shown=_high()),
    _common("ssl.keystore.password", Type.PASSWORD, "Its password.", shown=_high()),
    _common("ssl.key.password", Type.PASSWORD, "Password of the private key.", shown=_high()),
    _common("ssl.keystore.key", Type.PASSWORD, "The client's private key, as PEM text.",
            shown=_high()),
    _common("ssl.keystore.certificate.chain", Type.STRING, "Its certificates, as PEM text.",
            shown=_high(type="PASSWORD")),
    _common("ssl.truststore.certificates", Type.STRING, "Certificates to trust, as PEM text.",
            shown=_high(type="PASSWORD")),
    _common("ssl.truststore.type", Type.STRING, "Its format.", allowed=("JKS", "PKCS12", "PEM"),
            ignore_case=True, shown=_medium(default="JKS")),
    _common("ssl.truststore.location", Type.STRING, "File of the certificates to trust.",
            shown=_high()),
    _common("ssl.truststore.password", Type.PASSWORD, "Its password.", shown=_high()),
    _quiet("ssl.keymanager.algorithm", Type.STRING, _OWN_CLIENT, shown=_low(default="SunX509")),
    _quiet("ssl.trustmanager.algorithm", Type.STRING, _OWN_CLIENT, shown=_low(default="PKIX")),
    _common("ssl.endpoint.identification.algorithm", Type.STRING,
            "https checks the broker's host name; empty does not.", default="https",
            allowed=("https", ""), ignore_case=True, shown=_low()),
    _quiet("ssl.secure.random.implementation", Type.STRING, _OWN_CLIENT, shown=_low()),
    _quiet("ssl.engine.factory.class", Type.CLASS, _OWN_CLIENT, shown=_low()),
    _quiet("sasl.kerberos.service.name", Type.STRING, _KERBEROS, shown=_medium()),
    _quiet("sasl.kerberos.kinit.cmd", Type.STRING, _KERBEROS,
           shown=_low(default="/usr/bin/kinit")),
    _quiet("sasl.kerberos.ticket.renew.window.factor", Type.DOUBLE, _KERBEROS,
           shown=_low(default="0.8")),
    _quiet("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, _KERBEROS,
           shown=_low(default="0.05")),
    _quiet("sasl.kerberos.min.time.before.relogin", Type.LONG, _KERBEROS,
           shown=_low(default="60000")),
    _quiet("sasl.login.refresh.window.factor", Type.DOUBLE, _OWN_CLIENT,
           shown=_low(default="0.8", low=0.5, high=1.0)),
    _quiet("sasl.login.refresh.window.jitter", Type.DOUBLE, _OWN_CLIENT,
           shown=_low(default="0.05", low=0.0, high=0.25)),
    _quiet("sasl.login.refresh.min.period.seconds", Type.INT, _OWN_CLIENT,
           shown=_low(type="SHORT", default="60", low=0, high=900)),
    _quiet("sasl.login.refresh.buffer.seconds", Type.INT, _OWN_CLIENT,
           shown=_low(type="SHORT", default="300", low=0, high=3600)),
    _common("sasl.mechanism", Type.STRING, "How to log in; needed with SASL_*.",
            mm2_default="GSSAPI",
            allowed=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), shown=_medium()),
    _common("sasl.jaas.config", Type.PASSWORD,
            "Login module and its options; read as data, three modules are known.",
            shown=_medium()),
    _quiet("sasl.client.callback.handler.class", Type.CLASS, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.login.callback.handler.class", Type.CLASS, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.login.class", Type.CLASS, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.login.connect.timeout.ms", Type.INT, _OWN_CLIENT, shown=_low()),
    _quiet("sasl.login.read.timeout.ms", Type.INT, _OWN_CLIENT, shown=_low()),
    _quiet("sasl.login.retry.backoff.max.ms", Type.LONG, _OWN_CLIENT, shown=_low(default="10000")),
    _quiet("sasl.login.retry.backoff.ms", Type.LONG, _OWN_CLIENT, shown=_low(default="100")),
    _quiet("sasl.oauthbearer.jwt.retriever.class", Type.CLASS, _OWN_CLIENT,
           shown=_medium(default=f"{_OAUTH}.DefaultJwtRetriever")),
    _quiet("sasl.oauthbearer.jwt.validator.class", Type.CLASS, _OWN_CLIENT,
           shown=_medium(default=f"{_OAUTH}.DefaultJwtValidator")),
    _quiet("sasl.oauthbearer.scope", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.oauthbearer.client.credentials.client.id", Type.STRING, _OWN_CLIENT,
           shown=_medium()),
    _quiet("sasl.oauthbearer.client.credentials.client.secret", Type.PASSWORD, _OWN_CLIENT,
           shown=_medium()),
    _quiet("sasl.oauthbearer.assertion.algorithm", Type.STRING, _OWN_CLIENT,
           shown=_medium(default="RS256")),
    _quiet("sasl.oauthbearer.assertion.claim.aud", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.oauthbearer.assertion.claim.exp.seconds", Type.INT, _OWN_CLIENT,
           shown=_low(default="300", low=0, high=86400)),
    _quiet("sasl.oauthbearer.assertion.claim.iss", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.oauthbearer.assertion.claim.jti.include", Type.BOOLEAN, _OWN_CLIENT,
           shown=_medium(default="false")),
    _quiet("sasl.oauthbearer.assertion.claim.nbf.seconds", Type.INT, _OWN_CLIENT,
           shown=_low(default="60", low=0, high=3600)),
    _quiet("sasl.oauthbearer.assertion.claim.sub", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.oauthbearer.assertion.file", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.oauthbearer.assertion.private.key.file", Type.STRING, _OWN_CLIENT,
           shown=_medium()),
    _quiet("sasl.oauthbearer.assertion.private.key.passphrase", Type.PASSWORD, _OWN_CLIENT,
           shown=_medium()),
    _quiet("sasl.oauthbearer.assertion.template.file", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.oauthbearer.scope.claim.name", Type.STRING, _OWN_CLIENT,
           shown=_low(default="scope")),
    _quiet("sasl.oauthbearer.sub.claim.name", Type.STRING, _OWN_CLIENT, shown=_low(default="sub")),
    _common("sasl.oauthbearer.token.endpoint.url", Type.STRING, "Where OAUTHBEARER gets tokens.",
            shown=_medium()),
    _quiet("sasl.oauthbearer.jwks.endpoint.url", Type.STRING, _OWN_CLIENT, shown=_medium()),
    _quiet("sasl.oauthbearer.jwks.endpoint.refresh.ms", Type.LONG, _OWN_CLIENT,
           shown=_low(default="3600000")),
    _quiet("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Type.LONG, _OWN_CLIENT,
           shown=_low(default="10000")),
    _quiet("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type.LONG, _OWN_CLIENT,
           shown=_low(default="100")),
    _quiet("sasl.oauthbearer.clock.skew.seconds", Type.INT, _OWN_CLIENT, shown=_low(default="30")),
    _quiet("sasl.oauthbearer.expected.audience", Type.LIST, _OWN_CLIENT, shown=_high(default="")),
    _quiet("sasl.oauthbearer.expected.issuer", Type.STRING, _OWN_CLIENT, shown=_high()),
    _quiet("sasl.oauthbearer.header.urlencode", Type.BOOLEAN, _OWN_CLIENT,
           shown=_low(default="false")),
    # What other versions of Kafka have.
    _quiet("sasl.kerberos.*", Type.STRING, _KERBEROS),
    _quiet("sasl.login.*", Type.STRING, _OWN_CLIENT),
    _quiet("sasl.oauthbearer.*", Type.STRING, _OWN_CLIENT),
)  # fmt: skip

CLIENT_KEYS: tuple[Key, ...] = (
    *_COMMON_KEYS,
    Key("auto.offset.reset", Type.STRING,
        "Where a partition starts that was never mirrored.", Scope.CLIENT, default="earliest",
        allowed=("earliest", "latest"), ignore_case=True, roles=("consumer",)),
    Key("isolation.level", Type.STRING,
        "read_committed leaves aborted transactions out; read_uncommitted mirrors them.",
        Scope.CLIENT, default="read_committed", mm2_default="read_uncommitted",
        allowed=("read_committed", "read_uncommitted"), ignore_case=True, roles=("consumer",)),
    Key("compression.type", Type.STRING,
        "Of batches that are built anew (merged or re-encoded); others keep what they have."
        " Empty: as on the source.", Scope.CLIENT, default="", mm2_default="none",
        allowed=("", "none", "gzip", "snappy", "lz4", "zstd"), ignore_case=True,
        roles=("producer",)),
    Key("client.id", Type.STRING,
        "What brokers know a client by, in logs and quotas: <client.id>|<flow>|<role>; without it,"
        " <flow>|<role>.", Scope.CLIENT, roles=ROLES, importance="low"),
    Key("client.rack", Type.STRING, "Not used: records are fetched from the partitions' leaders.",
        Scope.CLIENT, status=Status.ACCEPTED, roles=("consumer",), importance="low"),
    *_java(ROLES,
        "client.dns.lookup request.timeout.ms retries retry.backoff.ms "
        "retry.backoff.max.ms reconnect.backoff.ms reconnect.backoff.max.ms metadata.max.age.ms "
        "connections.max.idle.ms send.buffer.bytes receive.buffer.bytes "
        "socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms "
        "default.api.timeout.ms metric.reporters metrics.num.samples metrics.recording.level "
        "metrics.sample.window.ms security.providers enable.metrics.push "
        "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms "
        "bootstrap.controllers"),
    *_java(("consumer",),
        "fetch.min.bytes fetch.max.bytes fetch.max.wait.ms max.partition.fetch.bytes "
        "max.poll.records max.poll.interval.ms check.crcs group.id group.instance.id "
        "group.protocol group.remote.assignor enable.auto.commit auto.commit.interval.ms "
        "session.timeout.ms heartbeat.interval.ms partition.assignment.strategy "
        "exclude.internal.topics allow.auto.create.topics key.deserializer value.deserializer "
        "interceptor.classes"),
    *_java(("producer",),
        "acks linger.ms batch.size buffer.memory compression.gzip.level "
        "compression.lz4.level compression.zstd.level max.request.size max.block.ms "
        "max.in.flight.requests.per.connection delivery.timeout.ms enable.idempotence "
        "transactional.id transaction.timeout.ms transaction.two.phase.commit.enable "
        "partitioner.class partitioner.ignore.keys partitioner.adaptive.partitioning.enable "
        "partitioner.availability.timeout.ms metadata.max.idle.ms key.serializer "
        "value.serializer interceptor.classes"),
)  # fmt: skip

_CONNECT = "Connect's worker; Heliograph has none."

_TAKE_OVER = "read when a flow is taken over from MM2 (docs/switching-from-mm2.md)."

WORKER_KEYS: tuple[Key, ...] = (
    # MM2's own state.
    Key("offset.storage.topic", Type.STRING,
        f"Where MM2 kept its positions, mm2-offsets.<source>.internal if not set; {_TAKE_OVER}",
        Scope.WORKER, importance="low"),
    Key("config.storage.topic", Type.STRING,
        f"Where MM2 kept its tasks, mm2-configs.<source>.internal if not set; {_TAKE_OVER}",
        Scope.WORKER, importance="low"),
    Key("group.id", Type.STRING,
        f"The group of MM2's workers, <source>-mm2 if not set; {_TAKE_OVER}",
        Scope.WORKER, importance="low", top_level=False),
    # The prefixes that MM2 hands to the worker from the top level.
    *_worker("offset.storage* config.storage* status.storage* key.converter* value.converter* "
             "header.converter* task* worker*", _CONNECT, top_level=True),
    # MM2's REST server, configured at the top level.
    *_worker("listeners listeners.* rest.* admin.listeners admin.listeners.* "
             "access.control.allow.origin access.control.allow.methods "
             "response.http.headers.config",
             "MM2's REST server. Heliograph's is run --listen; it reads listeners.https.* only.",
             top_level=True),
    # Reached only as B.x.
    *_worker("exactly.once.source.support", "Exactly once is always on.", top_level=False),
    *_worker("offset.flush.interval.ms offset.flush.timeout.ms client.id plugin.path "
             "plugin.discovery scheduled.rebalance.max.delay.ms rebalance.timeout.ms "
             "session.timeout.ms heartbeat.interval.ms connect.protocol inter.worker.* "
             "topic.creation.enable topic.tracking.enable topic.tracking.allow.reset "
             "connector.client.config.override.policy config.providers config.providers.* "
             "replication.policy.* metric.reporters metrics.* request.timeout.ms "
             "retry.backoff.ms retry.backoff.max.ms metadata.max.age.ms connections.max.idle.ms "
             "reconnect.backoff.ms reconnect.backoff.max.ms send.buffer.bytes "
             "receive.buffer.bytes client.dns.lookup", _CONNECT, top_level=False),
)  # fmt: skip
