"""A real S3 server on the loopback for tests: moto's, in a process of its own, with as many buckets as asked for."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.descriptors import fresh_id

# Whatever they are, the server takes them; the client insists on having some.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
REGION = "us-east-1"


class S3Server:
    """Where the server listens, and its buckets."""

    def __init__(self, process: "subprocess.Popen[str]", endpoint: str) -> None:
        self.endpoint = endpoint
        self._process = process

    def bucket(self) -> str:
        """Makes a bucket."""
        name = fresh_id("bucket").lower()
        with urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")):
            return name

    def die(self) -> None:
        """Ends the server, as an outage would."""
        self._process.kill()
        self._process.wait()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Runs a server for the block."""
    os.environ.update({name: value for name, value in CREDENTIALS.items() if name not in os.environ})
    command = [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        told = ""
        for line in process.stdout:
            told += line
            if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            raise RuntimeError(f"the S3 server did not start:\n{told}")
        # It logs each request; nobody reads on, and a full pipe would stop it.
        drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
        process.stdout.close()
        yield S3Server(process, found.group(1))
    finally:
        process.kill()
        process.wait()
    drain.wait()
