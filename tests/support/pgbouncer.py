"""A real PgBouncer in transaction mode in front of the test run's PostgreSQL (B43).

It listens on loopback and knows every database by name. It takes no start-up parameter but the usual ones, and its
server connections are fewer than its clients, so that transactions of one client meet different servers.
"""

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.guardian import GuardedFolder

START_SECONDS = 30.0

CONFIGURATION = """
[databases]
* = host={folder} port=5432 user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 2000
max_prepared_statements = 0
server_idle_timeout = 5
query_wait_timeout = 60
logfile = {log}
verbose = 0
"""


def executable() -> str | None:
    """Where PgBouncer is, if it is installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


class PgBouncer:
    """A running pooler."""

    def __init__(self, socket_folder: str) -> None:
        program = executable()
        assert program is not None, "PgBouncer is not installed; .ci/run says how"
        self._folder = GuardedFolder("tk-pgbouncer-")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        log = self._folder.path / "log"
        text = CONFIGURATION.format(folder=socket_folder, port=self.port, log=log)
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        if tuple(int(part) for part in version.split(".")[:2]) < (1, 21):
            # Older than its support for prepared statements: it does not know the setting, and never has them.
            text = text.replace("max_prepared_statements = 0\n", "")
        configuration = self._folder.path / "pgbouncer.ini"
        configuration.write_text(text)
        command = [program, str(configuration)]
        if os.geteuid() == 0:
            # It refuses to run as root; the owner of the server's socket may open it.
            owner = pwd.getpwuid(Path(socket_folder).stat().st_uid)
            self._folder.path.chmod(0o755)
            log.touch()
            os.chown(log, owner.pw_uid, owner.pw_gid)
            if owner.pw_uid == 0:
                owner = pwd.getpwnam("nobody")
                os.chown(log, owner.pw_uid, owner.pw_gid)
            command += ["-u", owner.pw_name]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self._process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)

    def url(self, direct_url: str) -> str:
        """The address of a database through the pooler, saying that it is one."""
        name = urlsplit(direct_url).path.lstrip("/")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}?pooler=transaction&ssl=disable"

    def close(self) -> None:
        """Stops it at once."""
        self._process.terminate()
        self._process.wait(10)
        self._folder.close()
