"""A real server for tests, and a proxy in front of it that can fail."""
import atexit, http.client, http.server, os, pathlib, re, subprocess, tempfile, threading, time, urllib.parse
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parents[3]
LIMIT = 60.0  # seconds; it only ends a test that would otherwise hang

_scratch = tempfile.TemporaryDirectory(prefix="belfry-python-")
_binary = os.environ.get("BELFRY_TEST_BINARY", "")


def start(*flags: str, data: str = "") -> str:
    """Starts a server, which ends with this process, and returns its address."""
    global _binary
    if not _binary:
        _binary = _scratch.name + "/belfry"
        subprocess.run(["go", "build", "-o", _binary, "./cmd/belfry"], cwd=ROOT, check=True)
    data = data or tempfile.mkdtemp(dir=_scratch.name)
    # The shell kills the server when the pipe is closed, however this process ends.
    guard = 'exec 3<&0; "$0" serve --listen 127.0.0.1:0 --data "$@" </dev/null 2>&1 & read -r line <&3; kill -KILL $!'
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BELFRY_")}
    process = subprocess.Popen(["/bin/sh", "-c", guard, _binary, data, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=environment)
    assert process.stdin and process.stdout
    pipe, output = process.stdin, process.stdout

    def stop() -> None:
        pipe.close()
        process.wait()
        output.close()

    atexit.register(stop)
    said = ""
    for line in output:
        said += line
        if found := re.search(r"API\s+(https?://\S+)/api/v1", line):
            threading.Thread(target=output.read, daemon=True).start()
            return found[1]
    raise AssertionError("the server did not start: " + said)


def eventually(condition: Callable[[], object], what: str) -> None:
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > LIMIT:
            raise AssertionError(f"still waiting: {what}")
        time.sleep(0.02)


class Proxy:
    """Forwards requests. What fault returns for a path happens instead: "refuse", "lose" (the request is executed and the answer
    is lost), "hang", "late" (the answer waits until healed is set), or an HTTP status."""

    def __init__(self, target: str) -> None:
        self.fault: Callable[[str], str | int] = lambda path: ""
        self.seen: list[tuple[str, dict[str, str]]] = []  # path and headers of requests
        self.busy: set[object] = set()  # requests that the server has not answered yet
        self.healed = threading.Event()  # ends what hangs
        proxy, host = self, urllib.parse.urlsplit(target).netloc

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.seen.append((self.path, dict(self.headers.items())))
                fault = proxy.fault(self.path)
                if fault == "hang":
                    proxy.healed.wait()
                if fault in ("refuse", "hang"):
                    self.close_connection = True
                    return
                if isinstance(fault, int):
                    return self.answer(fault, {"Retry-After": "0"}, b"busy")
                connection = http.client.HTTPConnection(host)
                proxy.busy.add(self)
                try:
                    connection.request(self.command, self.path, body, {**self.headers, "Host": host})
                    reply = connection.getresponse()
                    content = reply.read()
                except OSError:
                    self.close_connection = True
                    return
                finally:
                    connection.close()
                    proxy.busy.discard(self)
                if fault == "late":
                    proxy.healed.wait()
                if fault == "lose" or proxy.fault(self.path) == "refuse":  # also one that waited since before
                    self.close_connection = True
                    return
                self.answer(reply.status, dict(reply.getheaders()), content)

            def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
                try:
                    self.send_response_only(status)
                    for name, value in headers.items():
                        if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                            self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.healed.set()
        self._server.shutdown()
        self._server.server_close()
