"""An S3 server in its own process.

async def test_x(s3: S3Store): ...      an empty bucket on it, through the client that users have
"""

import http.client
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from obstore.store import S3Store


_buckets = count()


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """The port of the server. It is started for the first test that uses it and stopped after the last."""
    with tempfile.TemporaryFile("w+") as said:
        # With port 0 it takes a free port and prints it.
        command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield _port(process, said.fileno())
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def s3(s3_port: int) -> "S3Store":
    """A new bucket."""
    bucket = f"media-{next(_buckets)}"
    connection = http.client.HTTPConnection("127.0.0.1", s3_port, timeout=120)
    connection.request(
        "PUT",
        f"/{bucket}",
        headers={"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"},
    )
    assert connection.getresponse().status == 200
    connection.close()
    return bucket_at(s3_port, bucket)


def bucket_at(port: int, bucket: str) -> "S3Store":
    """Return a bucket of the server on a port. This does not connect yet."""
    from obstore.store import S3Store

    return S3Store(
        bucket,
        endpoint=f"http://127.0.0.1:{port}",
        region="us-east-1",
        access_key_id="test",
        secret_access_key="test",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "120s"},
        # The server may close a pooled connection just when it is used again. The product's stores have 10 retries.
        retry_config={"max_retries": 3},
    )


def _port(process: "subprocess.Popen[bytes]", said: int) -> int:
    deadline = time.monotonic() + 60
    while True:
        with open(said, closefd=False) as file:
            file.seek(0)
            text = file.read()
        if found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", text):
            return int(found[1])
        assert time.monotonic() < deadline, f"the object store did not start: {text}"
        assert process.poll() is None, f"the object store ended by itself: {text}"
        time.sleep(0.01)
