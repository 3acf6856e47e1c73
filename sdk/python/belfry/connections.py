"""HTTP over connections that are kept open, with calls that another thread can end."""
import contextlib, http.client, socket, ssl, threading, time
from collections.abc import Mapping
from typing import NamedTuple

from .errors import BelfryError, Unavailable

CONNECT_TIMEOUT = 5.0
IDLE_LIMIT = 30.0  # seconds after which an idle connection is not used again
Response = NamedTuple("Response", [("status", int), ("headers", Mapping[str, str]), ("body", bytes)])  # names in lower case


class Abort:
    """Ends a call from another thread. It is for one call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.done = False

    def attach(self, sock: socket.socket | None) -> None:
        with self._lock:
            self._socket = sock
            if self.done and sock is not None:
                raise ConnectionAbortedError("the call was ended")

    def abort(self) -> None:
        with self._lock:
            self.done = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not that of TLS, which is not for other threads


class Connections:
    """Connections to one server."""

    def __init__(self, secure: bool, host: str, port: int | None, context: ssl.SSLContext | None) -> None:
        self._host, self._port = host, port
        self._context = context or ssl.create_default_context() if secure else None
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []  # its methods are atomic

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None,
                timeout: float, limit: int, abort: Abort) -> Response:
        """Makes a request once. An answer of more than limit bytes is an error."""
        deadline, keep, connection = time.monotonic() + timeout, False, self._take()
        try:
            if connection.sock is None:
                connection.timeout = min(timeout, CONNECT_TIMEOUT)
                connection.connect()
            sock = connection.sock
            assert sock is not None
            abort.attach(sock)
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            content = bytearray()
            while part := answer.read(1 << 16):
                content += part
                if len(content) > limit:
                    raise BelfryError(f"the answer has more than {limit} bytes: request less at once")
                if connection.sock is not None:  # otherwise the connection is not kept, and the socket is out of reach
                    sock.settimeout(max(deadline - time.monotonic(), 0.001))
            if answer.length:
                raise http.client.IncompleteRead(bytes(content), answer.length)
            keep = not answer.will_close
            return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, bytes(content))
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"no answer from {self._host}: {error or type(error).__name__}") from error
        finally:
            abort.attach(None)
            if keep:
                self._idle.append((time.monotonic(), connection))
            else:
                connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _take(self) -> http.client.HTTPConnection:
        """A connection that is idle, or a new one that is not open yet."""
        with contextlib.suppress(IndexError, OSError):
            since, connection = self._idle.pop()
            connection.sock.settimeout(0)
            try:
                socket.socket.recv(connection.sock, 1, socket.MSG_PEEK)
            except BlockingIOError:  # there is nothing to read, as there would be if the server had closed it
                if time.monotonic() - since < IDLE_LIMIT:
                    return connection
            connection.close()
        if self._context:
            return http.client.HTTPSConnection(self._host, self._port, context=self._context)
        return http.client.HTTPConnection(self._host, self._port)
