"""Which archives workers have on their path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from heliograph.spark.archives import leave_out_archives


def test_spark_s_own_archives_are_left_out_where_pyspark_is_installed(tmp_path):
    home = tmp_path / "site" / "pyspark"
    home.mkdir(parents=True)
    (home / "__init__.py").touch()
    own = [str(home / "python" / "lib" / "pyspark.zip"), str(home / "jars" / "spark-core.jar")]
    path = [*own, "/jobs/py-files.zip", str(tmp_path / "site")]
    leave_out_archives(path)
    assert path == ["/jobs/py-files.zip", str(tmp_path / "site")]


def test_archives_of_another_spark_stay(tmp_path):
    path = ["/opt/spark/python/lib/pyspark.zip", *sys.path]
    leave_out_archives(path)
    assert path[0] == "/opt/spark/python/lib/pyspark.zip"
    only = ["/opt/spark/python/lib/pyspark.zip"]
    leave_out_archives(only)
    assert only


def test_the_workers_parent_reads_no_archive():
    """As Spark starts it: with its archives in front of the path."""
    home = Path(pyspark.__file__).parent
    archives = [*home.glob("python/lib/*.zip"), *home.glob("jars/spark-core_*.jar")]
    assert archives
    code = (
        "import sys, heliograph.spark.daemon, pyspark;"
        "print(pyspark.__file__, *sys.path, *sys.path_importer_cache)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(map(str, archives))}, timeout=300,
    )  # fmt: skip
    assert not [archive for archive in archives if str(archive) in done.stdout]
