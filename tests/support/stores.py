"""Stores on this machine: moto's S3 server, and a proxy before it, where requests fail, break off or lose a header."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread, Timer

BUCKET = "shelf"
SECRETS = ("AKIDNOBODYMUSTSEE", "a-secret-that-nobody-must-see")
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": SECRETS[0], "AWS_SECRET_ACCESS_KEY": SECRETS[1], "AWS_REGION": "us-east-1"}


@dataclass
class Moto:
    """A server in this process. Its objects outlive `stop`, so `start` is a restart."""

    port: int = 0
    _server: object = None

    def start(self) -> None:
        import logging

        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        self._server.stop()

    def kill(self, away_s: float) -> None:
        """Stop now, and start again after a while."""
        self.stop()
        Timer(away_s, self.start).start()

    def ask(self, method: str, path: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(
            method, path, headers={"Authorization": "AWS4-HMAC-SHA256 Credential=k/20200101/us-east-1/s3/aws4_request"}
        )
        answer = connection.getresponse().read()
        connection.close()
        return answer


FAULTS = ("503", "no answer", "answer lost", "answer cut")


@dataclass
class Proxy:
    """Passes requests on to `port`.

    ignores_conditions: without If-None-Match. one_in: of so many requests one fails, each in the next way of `FAULTS`.
    at: number of a request -> what is done before it, e.g. the server is killed.
    """

    port: int
    ignores_conditions: bool = False
    one_in: int = 0
    at: dict[int, Callable[[], None]] = field(default_factory=dict)
    counted: Counter = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def fault(self) -> str | None:
        with self.lock:
            self.counted["requests"] += 1
            if self.counted["requests"] in self.at:
                self.at.pop(self.counted["requests"])()
            if not self.one_in or self.counted["requests"] % self.one_in:
                return None
            self.counted["faults"] += 1
            fault = FAULTS[self.counted["faults"] % len(FAULTS)]
            self.counted[fault] += 1
            return fault

    @contextmanager
    def serving(self) -> Iterator[int]:
        """The port on which it listens."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy.fault()
                if fault == "503":
                    self.send_error(503)
                    return
                if fault == "no answer":
                    self.cut()
                    return
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if not (proxy.ignores_conditions and name.lower() == "if-none-match")
                }
                inner = HTTPConnection("127.0.0.1", proxy.port, timeout=20)
                try:
                    inner.request(self.command, self.path, body, headers)
                    found = inner.getresponse()
                    content = found.read()
                except OSError:  # the server is down
                    self.cut()
                    return
                finally:
                    inner.close()
                if fault == "answer lost":
                    self.cut()
                    return
                self.send_response(found.status)
                for name, value in found.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "date", "server", "content-length"):
                        self.send_header(name, value)
                length = found.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if fault == "answer cut" else content)
                if fault == "answer cut":
                    self.cut()

            def cut(self) -> None:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()


def environment_of(port: int) -> dict[str, str]:
    """Variables for a store on this machine, for `monkeypatch` or a process."""
    return {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
