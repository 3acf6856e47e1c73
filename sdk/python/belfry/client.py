"""The client of a Belfry server."""
import json, random, re, ssl, time, uuid
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from .connections import Abort, Connections, Response
from .errors import ApiError, BelfryError, FieldError, Unavailable
from .models import LIVE, Job, JobFilter, Manifest, RunFilter, RunLog, RunRecord

MAX_ANSWER = 64 << 20   # bytes
CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 413: "too_large", 429: "rate_limited",
         502: "unavailable", 503: "unavailable", 504: "unavailable"}  # of answers that are not those of a Belfry server
MAX_RETRY_AFTER = 30.0  # seconds beyond which a call fails instead
NEXT_PAGE = re.compile(r'<([^<>]*)>[^<>,]*;\s*rel="?next"?\s*(?:[;,]|$)', re.IGNORECASE)

_LOOPBACK = re.compile(r"^127(\.\d{1,3}){3}$|^::1$|(^|\.)localhost\.?$", re.IGNORECASE)


class Client:
    """Accesses one namespace of a server. It may be used by several threads.

    The server is an address such as "https://belfry.example.com", which may have a path. A job is given by its id or its name.

    Calls are repeated when the server cannot be reached, is overloaded or restarts: reads, calls that set a state, and calls
    that create or trigger, which have an idempotency key: one that is given counts once within seven days, otherwise the tries
    of one call count once. A call that fails raises ApiError, with the fields that are wrong, or Unavailable. The timeout, in
    seconds, is that of one try. A key is sent over http:// to this machine alone, unless insecure_plain_http allows more.
    """

    def __init__(self, server: str, *, key: str | None = None, namespace: str = "default", timeout: float = 30.0,
                 retries: int = 3, user_agent: str = "belfry-python/0.1.0", ssl_context: ssl.SSLContext | None = None,
                 insecure_plain_http: bool = False) -> None:
        if "@" in server:
            raise ValueError("the address of the server must not contain a user name or password; use key")
        parts = urlsplit(server if "://" in server else "http://" + server)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{server[:80]!r} is not the address of a server, such as https://belfry.example.com")
        self._headers = {"Accept": "application/json, application/problem+json", "Content-Type": "application/json",
                         "Belfry-Namespace": namespace, "User-Agent": user_agent}
        if key and parts.scheme == "http" and not insecure_plain_http and not _LOOPBACK.search(parts.hostname):
            raise ValueError(f"the API key is not sent to {server[:80]!r} without TLS, since whoever is between could read it: "
                             "use https://, or allow it with insecure_plain_http=True")
        if key:
            self._headers["Authorization"] = "Bearer " + key
        for name, value in self._headers.items():
            if not value.isascii() or not value.isprintable():
                raise ValueError(f"the header {name} must have printable ASCII characters only")
        self._prefix = parts.path.rstrip("/").removesuffix("/api/v1").rstrip("/") + "/api/v1"
        self._connections = Connections(parts.scheme == "https", parts.hostname, parts.port, ssl_context)
        self.close = self._connections.close  # closes idle connections; the client may be used again
        self._timeout, self._retries = timeout, max(retries, 0)

    def create_job(self, manifest: Manifest, *, idempotency_key: str | None = None) -> Job:
        """Creates a job. A name that is taken is the code "conflict"."""
        return cast(Job, self._json("POST", "/jobs", manifest, idempotency_key or str(uuid.uuid4())))

    def put_job(self, name: str, manifest: Manifest) -> Job:
        """Creates the job of a name, or changes it to what the manifest says. Nothing changes if nothing differs."""
        return cast(Job, self._json("PUT", _path("jobs", name), manifest))

    def patch_job(self, job: str, changes: Mapping[str, Any]) -> Job:
        return cast(Job, self._json("PATCH", _path("jobs", job), changes))

    def get_job(self, job: str) -> Job:
        return cast(Job, self._json("GET", _path("jobs", job)))

    def list_jobs(self, filter: JobFilter | None = None) -> Iterator[Job]:
        """Lists jobs, newest first, page by page while the loop runs."""
        return self._pages("/jobs", filter or {})

    def delete_job(self, job: str, *, cancel_runs: bool = False, delete_history: bool = False) -> None:
        """Deletes a job. Without the options its live runs finish and its history is kept."""
        options = {"runs": "cancel" if cancel_runs else "", "history": "delete" if delete_history else ""}
        self._call("DELETE", _path("jobs", job) + _query(options))

    def pause_job(self, job: str) -> Job:
        """Stops a job from firing until it is resumed."""
        return cast(Job, self._json("POST", _path("jobs", job) + "/pause"))

    def resume_job(self, job: str, *, catch_up: bool = False) -> Job:
        """Resumes a paused job; catch_up runs what the pause missed."""
        return cast(Job, self._json("POST", _path("jobs", job) + "/resume", {"catch_up": catch_up}))

    def trigger_job(self, job: str, payload: Any = None, *, idempotency_key: str | None = None) -> str:
        """Runs a job now and returns the id of the run. A payload that is not None replaces that of the job."""
        body = {} if payload is None else {"payload": payload}
        return cast(str, self._json("POST", _path("jobs", job) + "/trigger", body, idempotency_key or str(uuid.uuid4()))["run_id"])

    def get_run(self, run_id: str) -> RunRecord:
        return cast(RunRecord, self._json("GET", _path("runs", run_id)))

    def list_runs(self, filter: RunFilter | None = None) -> Iterator[RunRecord]:
        """Lists runs and skips, latest first, page by page while the loop runs."""
        return self._pages("/runs", filter or {})

    def run_log(self, run_id: str, *, attempt: int = 0, offset: int = 0) -> RunLog:
        """What the handler of an attempt wrote to its log, also while it runs. Attempt 0 is the latest."""
        return cast(RunLog, self._json("GET", _path("runs", run_id) + "/log" + _query({"attempt": attempt, "offset": offset})))

    def cancel_run(self, run_id: str) -> RunRecord:
        """Cancels a run: a waiting one at once, a running one when its worker has stopped. One that has ended is a "conflict"."""
        return cast(RunRecord, self._json("POST", _path("runs", run_id) + "/cancel"))

    def wait_run(self, run_id: str, *, timeout: float | None = None) -> RunRecord:
        """Waits until a run has ended, however that is. After timeout seconds, also of a server that is down: TimeoutError."""
        begin, interval = time.monotonic(), 0.1
        while True:
            try:
                run = self.get_run(run_id)
                if run["status"] not in LIVE:
                    return run
            except Unavailable:
                if timeout is None:
                    raise
            if timeout is not None and time.monotonic() - begin + interval > timeout:
                raise TimeoutError(f"run {run_id} has not ended after {timeout:g} seconds")
            time.sleep(interval)
            interval = min(interval * 1.5, 2.0)

    def worker_call(self, worker: str, verb: str, body: object, timeout: float, abort: Abort | None = None, size: int = 1 << 20) -> Any:
        """Makes a call of a worker, once: class Worker repeats them."""
        reply = self._try("POST", f"/workers/{worker}/{verb}", body, None, timeout, abort or Abort(), size)[0]
        if not isinstance(reply, dict) or {"claim": "runs", "heartbeat": "unknown", "finish": "verdicts"}[verb] not in reply:
            raise BelfryError("the answer is not one of a Belfry server: check the address")
        return reply

    def _json(self, method: str, path: str, body: object = None, key: str | None = None) -> Any:
        return self._call(method, path, body, key)[0]

    def _call(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[Any, Mapping[str, str]]:
        unknown = False  # an earlier try may have been executed
        for number in range(self._retries + 1):
            delay = min(0.2 * 2 ** number, 5.0) * random.uniform(0.5, 1.5)
            try:
                return self._try(method, path, body, key, self._timeout, Abort(), MAX_ANSWER)
            except ApiError as error:
                if unknown and error.status == 404 and method == "DELETE":
                    break
                if error.status not in (429, 502, 503, 504) or error.retry_after > MAX_RETRY_AFTER or number == self._retries:
                    raise
                unknown, delay = unknown or error.status != 429, max(delay, error.retry_after)
            except Unavailable as error:
                if isinstance(error.__cause__, ssl.SSLCertVerificationError) or number == self._retries:
                    raise
                unknown = True
            time.sleep(delay)
        return None, {}

    def _try(self, method: str, path: str, body: object, key: str | None, timeout: float, abort: Abort,
             limit: int) -> tuple[Any, Mapping[str, str]]:
        headers = {**self._headers, "Idempotency-Key": key} if key else self._headers
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        answer = self._connections.request(method, self._prefix + path, headers, content, timeout, limit, abort)
        try:
            value = json.loads(answer.body or "null")
        except ValueError as error:
            if answer.status < 300:
                raise BelfryError("the answer is not one of a Belfry server: check the address") from error
            value = None
        if answer.status >= 300:
            raise _api_error(answer, value)
        return value, answer.headers

    def _pages(self, path: str, filter: Mapping[str, Any]) -> Iterator[Any]:
        query, following = None, _query({"tag" if name == "tags" else name: value for name, value in filter.items()})
        while following != query:
            query = following
            items, headers = self._call("GET", path + query)
            yield from items
            # Of the link only the query is used: the key goes nowhere else, and a proxy may know the server by another path.
            if found := NEXT_PAGE.search(headers.get("link", "")):
                following = "?" + urlsplit(found[1]).query


def _path(kind: str, ref: str) -> str:
    if not ref:
        raise ValueError("an id or name is empty")
    return f"/{kind}/" + quote(ref, safe="")


def _query(values: Mapping[str, Any]) -> str:
    text = urlencode({name: value for name, value in values.items() if value}, doseq=True)
    return "?" + text if text else ""


def _api_error(answer: Response, problem: Any) -> ApiError:
    """The error of an answer. If it is not a problem document, only its status counts: the text may be a page of a proxy."""
    after = answer.headers.get("retry-after", "")
    if not isinstance(problem, dict) or not answer.headers.get("content-type", "").startswith("application/problem+json"):
        problem = {"code": CODES.get(answer.status, "internal"), "detail": f"the answer {answer.status} is not one of Belfry"}
    fields = [FieldError(f["field"], f["message"]) for f in problem.get("errors") or []]
    return ApiError(answer.status, problem.get("code", ""), problem.get("detail", ""), fields, problem.get("request_id", ""),
                    float(after) if after.isdecimal() else 0.0)
