"""The real MirrorMaker 2, to measure against and to interoperate with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.lab.cluster import DEFAULT_KAFKA_VERSION
from heliograph.lab.process import MARKER, JavaProcess

__all__ = ["MirrorMaker2"]


class MirrorMaker2(JavaProcess):
    """MM2's dedicated driver, with the JVM flags of its own ``connect-mirror-maker.sh``."""

    def __init__(
        self,
        properties_path: Path | str,
        folder: Path | str,
        heap: str = "2g",
        version: str = DEFAULT_KAFKA_VERSION,
        name: str = "mm2",
        jvm_flags: Sequence[str] = (),
    ) -> None:
        """Describes the process; ``start`` runs it.

        Args:
            properties_path: its mm2.properties.
            folder: its log is ``folder/logs/<name>.log``.
            heap: -Xmx; 2 GB is what its script sets.
            version: of Kafka.
            name: of the log file, when several share a folder.
            jvm_flags: more of them; none for measurements.
        """
        folder = Path(folder).resolve()
        # KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh, so that measurements are fair to MM2.
        gc = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
        flags = [f"{MARKER}{folder}", "-Xms256M", f"-Xmx{heap}", "-server", *gc, *jvm_flags]
        super().__init__(
            name,
            "org.apache.kafka.connect.mirror.MirrorMaker",
            [str(Path(properties_path).resolve())],
            classpath=classpath(version, Artifact.CONNECT_MIRROR),
            folder=folder,
            jvm_flags=[*flags, "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"],
            log_level="INFO",
        )
