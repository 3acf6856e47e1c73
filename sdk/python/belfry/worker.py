"""A worker: it claims runs, calls their handlers and reports the results."""
import contextlib, json, logging, random, signal, socket, threading, time, uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from queue import SimpleQueue
from typing import Any, Literal

from .client import Client
from .connections import Abort
from .errors import ApiError, BelfryError, Permanent, RetryAfter, Snooze

log = logging.getLogger("belfry")

Handler = Callable[["Run"], object]
Cause = Literal["timed_out", "interrupted", "cancelled", "lease_lost"]
MAX_ERROR, MAX_OUTPUT, MAX_LOG = 8 << 10, 64 << 10, 64 << 10  # bytes that are kept
MAX_DELAY = 7 * 24 * 3600.0                                   # seconds
MAX_CLAIM, MAX_RESULTS, MAX_HELD = 100, 20, 10_000            # in a call, which bounds its size
MAX_RUN = 6 * (256 << 10) + (16 << 10)                        # bytes of a run in an answer


class Run:
    """An attempt to do the work of a run, as its handler sees it."""

    def __init__(self, claimed: dict[str, Any], incarnation: str, state: threading.Condition) -> None:
        self.id: str = claimed["run_id"]
        self.attempt: int = claimed["attempt"]
        self.payload: Any = claimed.get("payload")
        self.idempotency_key: str = claimed["idempotency_key"]  # the same in every attempt
        self.handler, self.queue, self.namespace = str(claimed["handler"]), str(claimed["queue"]), str(claimed["namespace"])
        self.job_id, self.job_name = str(claimed["job_id"]), str(claimed.get("job_name", ""))
        self.scheduled_at = datetime.fromisoformat(claimed["scheduled_at"])
        self.timeout_seconds: float = claimed["timeout_seconds"] or 60
        self.traceparent: str = claimed.get("traceparent", "")
        self.ended = threading.Event()   # set when the attempt must end
        self.cause: Cause | None = None  # why
        self._state, self._incarnation, self._token = state, incarnation, claimed["token"]
        self._held = {"run_id": self.id, "attempt": self.attempt}
        self._alarm = time.monotonic() + self.timeout_seconds  # when it must end, and then when it is abandoned
        self._over = False                           # it has a result or needs none
        self._stuck = False                          # it was abandoned while its handler runs
        self._log, self._log_start = bytearray(), 0  # the newest part, and the bytes before it
        self._log_sent = self._log_sends = 0         # bytes that the server has, and in how many pieces

    def log(self, *values: object) -> None:
        """Writes a line to the log of the run, as print does. The newest 64 KiB are kept and shown, also while it runs."""
        text = " ".join(map(str, values)).replace("\0", "?") + "\n"
        with self._state:
            if not self._over:
                self._log += text.encode("utf-8", "replace")
                self._cut_log(2 * MAX_LOG)
                self._state.notify_all()

    def _has_log(self) -> bool:
        return self._log_start + len(self._log) > self._log_sent

    def _cut_log(self, limit: int) -> None:
        over = len(self._log) - MAX_LOG if len(self._log) > limit else 0
        while over and self._log[over:over + 1] and self._log[over] & 0xC0 == 0x80:  # not within a character
            over += 1
        del self._log[:over]
        self._log_start += over

    def _result(self, outcome: str, error: str) -> dict[str, Any]:
        return {**self._held, "token": self._token, "outcome": outcome, "error": error}


class Worker:
    """Executes runs of the handlers that it has, in threads.

    What a handler returns is the output: text, or a value that is written as JSON. An exception is a failed attempt, which is
    retried by the policy of the job; Snooze, RetryAfter and Permanent, also as the cause of another one, change that. A thread
    cannot be stopped from outside: a long handler looks at run.ended, and raises when it is set. One that does not return within
    5 seconds is abandoned; its slot stays in use. While the server cannot be reached, calls are repeated and results are kept.
    Without a heartbeat for 15 seconds nothing is started.
    """

    # Seconds, which fit to those of the server. Only tests change them.
    _heartbeat_interval, _heartbeat_timeout, _lease = 5.0, 4.0, 15.0
    _cancel_delay, _log_interval = 7.0, 1.0  # within which a worker learns of a cancellation; between heartbeats for logs
    _claim_wait, _claim_slack = 10.0, 5.0    # how long the server may hold a claim; network time
    _finish_timeout, _flush = 8.0, 10.0      # of a call; for the last results to be accepted
    _grace, _longest_pause = 5.0, 5.0        # for handlers to return when their attempt must end; between tries

    def __init__(self, client: Client, *, queues: Sequence[str] = ("default",), concurrency: int = 10,
                 drain_timeout: float = 30.0, node: str | None = None) -> None:
        self._client, self._queues, self._slots = client, list(queues), max(concurrency, 1)
        self._drain_timeout, node = drain_timeout, (node or socket.gethostname())[:200]
        self._identity: dict[str, Any] = {"node": node, "slots": self._slots, "queue": self._queues}
        self._handlers: dict[str, Handler] = {}
        self._stops: SimpleQueue[None] = SimpleQueue()  # unlike an event, it may be used in a signal handler
        self._state = threading.Condition()  # guards the fields below, and is notified when one changes
        self._started, self._claiming, self._draining, self._done = False, True, False, False
        self._claim = Abort()                # of the latest claim
        self._incarnation = str(uuid.uuid4())
        self._renewed: tuple[float, float] | None = None  # when the last accepted heartbeat was sent: monotonic and wall clock
        self._sequence = 0
        self._running: dict[str, Run] = {}   # by id: attempts of this incarnation without a result
        self._busy: set[Run] = set()         # attempts whose handlers have not returned: slots in use
        self._cancelled: list[dict[str, Any]] = []           # attempts that the last reply cancels
        self._unsent: list[tuple[str, dict[str, Any]]] = []  # incarnation and result, oldest first
        self._failing: set[str] = set()      # calls that failed when last tried

    def handler(self, name: str) -> Callable[[Handler], Handler]:
        """Registers a handler: @worker.handler("send-invoice")."""
        def register(function: Handler) -> Handler:
            if not name or name in self._handlers:
                raise ValueError(f"a handler needs a name that is not taken: {name!r}")
            self._handlers[name] = function
            return function
        return register

    def stop(self) -> None:
        """Makes run drain and return. It may be called anywhere."""
        self._stops.put(None)

    def run(self) -> None:
        """Executes runs until stop, or until SIGTERM or SIGINT if this is the main thread. Then it drains: it claims nothing more,
        lets handlers finish for drain_timeout seconds, interrupts the rest, which costs them no retry, sends every result and
        unregisters. It raises BelfryError if results were not accepted. It may be called once."""
        if self._started or not self._handlers:
            raise ValueError("start worker: a worker runs once and needs a handler")
        self._started = True
        self._identity |= {"handlers": list(self._handlers)}
        numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in numbers}
        loops = (self._heartbeat_loop, self._claim_loop, self._send_loop, self._alarm_loop)
        heartbeats, *_ = [self._start(loop) for loop in loops]
        self._stops.get()
        for number, handler in before.items():
            signal.signal(number, handler)  # a second signal ends the process
        self._drain()
        heartbeats.join()
        if self._unsent:
            raise BelfryError(f"drain worker: {len(self._unsent)} results were not accepted in time")
        if self._renewed is not None:
            with contextlib.suppress(BelfryError):  # without it the server unregisters the worker after a while
                self._client.worker_call(self._incarnation, "heartbeat", self._identity | {"leave": True}, self._heartbeat_timeout)

    def _start(self, function: Callable[..., None], *args: Any) -> threading.Thread:
        (thread := threading.Thread(target=function, args=args, daemon=True)).start()
        return thread

    def _drain(self) -> None:
        with self._state:
            self._draining = True
            self._claim.abort()
            self._state.notify_all()
            idle = lambda: not self._claiming and all(run._stuck for run in self._busy)
            if not self._state.wait_for(idle, self._drain_timeout):
                for run in self._running.values():
                    self._end(run, "interrupted")
                self._state.wait_for(idle, self._grace + 1)
            self._state.wait_for(lambda: not self._claiming and not self._unsent, self._flush)
            self._done = True
            self._state.notify_all()

    def _note(self, call: str, error: Exception | None) -> None:
        """Keeps the log short: one line when calls begin to fail, and one when all succeed again."""
        with self._state:
            before, self._failing = self._failing, self._failing | {call} if error else self._failing - {call}
        if error and not before:
            log.warning("the server fails; calls are retried until it answers: %s: %s", call, error)
        elif before and not self._failing:
            log.info("the server answers again")

    def _pause(self, failures: int, first: float = 0.1) -> float:
        return min(first * float(2 ** min(failures, 10)), self._longest_pause) * random.uniform(0.8, 1.2)

    def _heartbeat_loop(self) -> None:
        registered, failures = False, 0
        while not self._done:
            sent, wall = time.monotonic(), time.time()
            logs = registered and not failures  # which must not cost the worker its lease
            body = self._next_heartbeat(not registered, logs)
            try:
                reply = self._client.worker_call(self._incarnation, "heartbeat", body, self._heartbeat_timeout)
                failures = 0
            except BelfryError as error:
                self._note("heartbeat", error)
                with self._state:
                    self._claim.abort()  # it is repeated: its connection may be as dead as that of the heartbeat
                    self._state.wait_for(lambda: self._done, self._pause(failures))
                failures += 1
                continue
            registered = not reply["unknown"]
            if not self._apply_reply(reply, body["logs"], (sent, wall)):
                return
            # A run may be cancelled just after the server made its reply: where replies take long, the next one is earlier.
            took = time.monotonic() - sent
            due = sent + min(self._heartbeat_interval, self._cancel_delay - took) if registered else sent + self._pause(0)
            with self._state:
                self._state.wait_for(lambda: self._done, min(due, sent + self._log_interval) - time.monotonic())
                logged = lambda: self._done or any(run._has_log() for run in self._running.values())
                self._state.wait_for(logged, due - time.monotonic())

    def _next_heartbeat(self, register: bool, logs: bool) -> dict[str, Any]:
        with self._state:
            self._sequence += 1
            held = [run._held for run in self._running.values()]
            held += [{"run_id": r["run_id"], "attempt": r["attempt"]} for i, r in self._unsent if i == self._incarnation]
            complete = not register and len(held) <= MAX_HELD  # an incomplete list would release the others
            chunks: list[dict[str, Any]] = []
            for run in self._running.values():
                if logs and run._has_log() and len(chunks) < 10:
                    run._cut_log(MAX_LOG)
                    whole = run._log_sends % 64 == 63  # now and then all of it, so that the server keeps few pieces
                    offset = run._log_start if whole else max(run._log_sent, run._log_start)
                    text = run._log[offset - run._log_start:].decode()
                    chunks.append({**run._held, "token": run._token, "offset": offset, "text": text})
            return {**self._identity, "sequence": self._sequence, "register": register, "complete": complete,
                    "held": held if complete else [], "logs": chunks}

    def _apply_reply(self, reply: dict[str, Any], logs: list[dict[str, Any]], sent: tuple[float, float]) -> bool:
        """Renews the lease, which counts from when the heartbeat was sent, and ends attempts that were lost or cancelled. A worker
        that the server does not know any more drops all of them and takes a new id. False: no further heartbeat is needed."""
        with self._state:
            self._note("heartbeat", None)
            self._renewed, self._cancelled = sent, reply["cancel"] or []
            for chunk in logs:
                if (run := self._running.get(chunk["run_id"])) is not None and run.attempt == chunk["attempt"]:
                    run._log_sent, run._log_sends = chunk["offset"] + len(chunk["text"].encode()), run._log_sends + 1
            for run in list(self._running.values()):
                if reply["unknown"] or run._held in (reply["lost"] or []):
                    self._finish(run, None)
                elif run._held in self._cancelled:
                    self._end(run, "cancelled")
            if reply["unknown"]:
                log.warning("the server does not know this worker any more; it continues with a new id")
                self._incarnation, self._renewed = str(uuid.uuid4()), None
                self._claim.abort()
            self._state.notify_all()
            return not (reply["unknown"] and self._draining)

    def _may_start(self) -> bool:
        """Whether the lease is valid. The wall clock counts too, since the other one stops while a machine is suspended."""
        return self._renewed is not None and self._lease > max(time.monotonic() - self._renewed[0], time.time() - self._renewed[1])

    def _free(self) -> int:
        """How many runs may be claimed. Attempts and results together never exceed twice the slots."""
        return min(self._slots - len(self._busy), 2 * self._slots - len(self._running) - len(self._unsent), MAX_CLAIM)

    def _claim_loop(self) -> None:
        failures = 0
        while True:
            with self._state:
                self._state.wait_for(lambda: self._draining or self._free() > 0 and self._may_start())
                if self._draining:
                    self._claiming = False
                    self._state.notify_all()
                    return
                incarnation, limit, sent = self._incarnation, self._free(), time.monotonic()
                abort = self._claim = Abort()
            body = {"queue": self._queues, "handlers": list(self._handlers), "limit": limit, "wait_seconds": self._claim_wait}
            try:
                timeout, size = self._claim_wait + self._claim_slack, (1 << 20) + limit * MAX_RUN
                reply = self._client.worker_call(incarnation, "claim", body, timeout, abort, size)
                failures, runs = 0, [Run(claimed, incarnation, self._state) for claimed in reply["runs"]]
                self._note("claim", None)
                self._start_runs(incarnation, runs)
                pause = 0.0 if runs else self._pause(0, 0.5) - (time.monotonic() - sent)
            except BelfryError as error:  # runs may be taken that never arrived; complete heartbeats let the server release them
                pause = 0.0
                if not abort.done:
                    self._note("claim", error)
                    pause, failures = self._pause(failures), failures + 1
            with self._state:
                self._state.wait_for(lambda: self._draining, max(pause, 0.0))

    def _start_runs(self, incarnation: str, runs: list[Run]) -> None:
        """Starts claimed runs. Those that must not start are returned."""
        with self._state:
            for run in runs:
                old = self._running.get(run.id)
                if old is not None and old.attempt >= run.attempt:
                    continue  # claimed twice
                if old is not None:
                    self._finish(old, None)
                if run._held in self._cancelled:
                    self._finish(run, run._result("cancelled", "the run was cancelled before it was started"))
                elif self._draining or incarnation != self._incarnation or not self._may_start() or len(self._busy) >= self._slots:
                    self._finish(run, run._result("interrupted", "returned before it was started"))
                else:
                    self._running[run.id] = run
                    self._busy.add(run)
                    self._start(self._work, run)
            self._state.notify_all()

    def _work(self, run: Run) -> None:
        try:
            output = self._handlers[run.handler](run)
            result = {**run._result("succeeded", ""), "output": "" if output is None else _text(output, MAX_OUTPUT)}
        except BaseException as error:  # also SystemExit: a handler does not end the worker
            result = self._failure(run, error)
        with self._state:
            self._busy.discard(run)
            if not run._over:
                self._finish(run, result)
            self._state.notify_all()

    def _failure(self, run: Run, error: BaseException | None) -> dict[str, Any]:
        """The result of an attempt that did not succeed. Why it had to end takes precedence over an error."""
        if run.cause is not None:
            texts = {"timed_out": f"no answer within {run.timeout_seconds:g}s", "cancelled": "the run was cancelled"}
            return run._result(run.cause, texts.get(run.cause, "interrupted: the worker is shutting down"))
        own = (Snooze, RetryAfter, Permanent)
        name = "" if isinstance(error, own) else type(error).__name__ + ": "
        result = run._result("failed", name + _text(error, MAX_ERROR))
        for _ in range(100):  # "raise … from …" may make a ring
            error = error if error is None or isinstance(error, own) else error.__cause__
        if isinstance(error, (Snooze, RetryAfter)):
            if error.seconds > MAX_DELAY:
                log.warning("run %s is to wait for %g seconds; the longest delay is 7 days", run.id, error.seconds)
            result["retry_after_seconds"] = min(max(0.001, error.seconds), MAX_DELAY)  # 0 would be the delay of the job
            result["outcome"] = "snoozed" if isinstance(error, Snooze) else "failed"
        return {**result, "permanent": isinstance(error, Permanent)}

    def _end(self, run: Run, cause: Cause) -> None:
        """Tells a handler that its attempt must end. The first cause counts."""
        if run.cause is None:
            log.info("attempt %d of run %s must end: %s", run.attempt, run.id, cause)
            run.cause, run._alarm = cause, time.monotonic() + self._grace
            run.ended.set()
            self._state.notify_all()

    def _finish(self, run: Run, result: dict[str, Any] | None) -> None:
        """Ends an attempt, without a result if this worker no longer holds it."""
        run._over = True
        self._running.pop(run.id, None)
        if result is None:
            return self._end(run, "lease_lost")
        run._cut_log(MAX_LOG)
        self._unsent.append((run._incarnation, {**result, "log": run._log.decode(), "log_offset": run._log_start}))

    def _alarm_loop(self) -> None:
        """Ends attempts at their timeout, and abandons handlers that do not return then: their slots stay in use."""
        with self._state:
            while not self._done:
                for run in [run for run in self._busy if not run._stuck and run._alarm <= time.monotonic()]:
                    if run.cause is None:
                        self._end(run, "timed_out")
                        continue
                    log.warning("the handler of run %s is stuck: it does not return", run.id)
                    run._stuck = True
                    if not run._over:
                        self._finish(run, self._failure(run, None))
                    self._state.notify_all()
                alarms = [run._alarm for run in self._busy if not run._stuck]
                self._state.wait(max(min(alarms) - time.monotonic(), 0.0) if alarms else None)

    def _send_loop(self) -> None:
        """Sends results until they are accepted. After a failure they are sent one by one, and one that fails moves behind the
        others: one that cannot be stored must not block them."""
        failures = 0
        while True:
            with self._state:
                self._state.wait_for(lambda: self._unsent or self._done)
                if self._done:
                    return
                batch = self._unsent[:1 if failures else MAX_RESULTS]
            failed: Exception | None = None
            body = {"results": [result for _, result in batch]}
            try:
                reply = self._client.worker_call(self._incarnation, "finish", body, self._finish_timeout)
                for result, verdict in zip(body["results"], reply["verdicts"], strict=True):
                    if verdict == "late":
                        log.info("a result came too late and changed nothing: attempt %(attempt)d of run %(run_id)s", result)
            except (BelfryError, ValueError) as error:
                failed = error
            self._note("finish", failed)
            with self._state:
                del self._unsent[:len(batch)]  # until now it is held
                failures = failures + 1 if failed else 0
                rejected = isinstance(failed, ApiError) and failed.code in ("invalid", "bad_request", "too_large")
                if rejected and len(batch) == 1:  # it loses output and log; after that its run is offered again at its deadline
                    log.error("a result was rejected: attempt %(attempt)d of run %(run_id)s", batch[0][1])
                    rejected = not any([batch[0][1].pop(name, "") for name in ("output", "log", "log_offset")])
                if failed and (len(batch) > 1 or not rejected):
                    self._unsent += batch
                self._state.notify_all()
                self._state.wait_for(lambda: self._done, min(self._pause(failures, 0.05), 2.0) if failed else 0)


def _text(value: object, limit: int) -> str:
    """At most limit bytes of a text or an error, or of a value as JSON, without what cannot be stored."""
    text = f"a {type(value).__name__} that cannot be shown"
    with contextlib.suppress(Exception):
        text = str(value) if isinstance(value, (str, BaseException)) else json.dumps(value)
    return text.replace("\0", "\ufffd").encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
