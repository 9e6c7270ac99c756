"""Servers of our own, on this machine, for tests of the store that hosts share."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

BUCKET = "kernels"


@contextmanager
def redis_server(folder: Path, *options: str) -> Generator[str]:
    """The URL of a Redis server on a socket file. Skips where there is none installed."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    path = folder / "socket"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", *options]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert any("accept connections" in line for line in server.stdout)
    try:
        yield f"unix://{path}?db=0"
    finally:
        server.kill()
        server.wait()


@contextmanager
def s3_server() -> Generator[str]:
    """The endpoint of an S3 server in this process, with one empty bucket."""
    servers = pytest.importorskip("moto.server")
    boto3 = importlib.import_module("boto3")
    server = servers.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test",
            aws_secret_access_key="test",
        ).create_bucket(Bucket=BUCKET)  # fmt: skip
        yield endpoint
    finally:
        server.stop()


def use_s3(endpoint: str) -> dict[str, str]:
    """The environment variables with which s3fs finds the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": os.environ.get("NO_PROXY", "") + ",127.0.0.1,localhost",
    }
