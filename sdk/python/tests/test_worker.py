"""The scenarios of the worker in Go, with a real server and short intervals. BELFRY_TEST_CHAOS=1 adds an outage of a minute with
the intervals that users have."""
import json, os, threading, time, typing, unittest, urllib.request

from belfry import BelfryError, Client, Permanent, RetryAfter, Run, Snooze, Worker
from belfry.models import Manifest, RunRecord

from . import server


class WorkerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.address = server.start()

    def setUp(self) -> None:
        self.client = self.connect(self.address)
        self.proxy = server.Proxy(self.address)
        self.addCleanup(self.proxy.close)

    def connect(self, address: str) -> Client:
        client = Client(address, namespace=self._testMethodName.replace("_", "-"))
        self.addCleanup(client.close)
        return client

    def worker(self, handler: typing.Callable[[Run], object], **options: typing.Any) -> Worker:
        """Starts a worker with the handler "work", whose calls go through the proxy."""
        worker = Worker(self.connect(self.proxy.address), **options)
        worker._heartbeat_interval, worker._cancel_delay, worker._log_interval = 0.2, 1.0, 0.1
        worker._longest_pause, worker._grace, worker._claim_wait = 0.3, 0.5, 1.0
        worker.handler("work")(handler)
        return self.begin(worker)

    def begin(self, worker: Worker) -> Worker:
        self.ended: list[BaseException | None] = []

        def run() -> None:
            try:
                worker.run()
                self.ended.append(None)
            except BelfryError as error:
                self.ended.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def end() -> None:
            self.proxy.fault = lambda path: ""
            worker.stop()
            thread.join(server.LIMIT)
            self.assertTrue(self.ended, "the worker did not end")

        self.addCleanup(end)
        return worker

    def end(self, worker: Worker) -> BaseException | None:
        worker.stop()
        server.eventually(lambda: self.ended, "the worker ends")
        return self.ended[0]

    def trigger(self, payload: object = None, **settings: typing.Any) -> str:
        manifest: Manifest = {"handler": "work", "schedule": "@yearly", "overlap": "parallel", "retry_base_seconds": 0.1, "max_retries": 1}
        self.client.put_job("job", typing.cast(Manifest, {**manifest, **settings}))
        return self.client.trigger_job("job", payload)

    def settled(self, run: str) -> RunRecord:
        return self.client.wait_run(run, timeout=server.LIMIT)

    def post(self, worker: str, verb: str, body: object) -> typing.Any:
        """Makes a call in the name of a worker."""
        return self.client.worker_call(worker, verb, body, 10)

    def test_results(self) -> None:
        error = KeyError("who")

        def work(run: Run) -> object:
            run.log("attempt", run.attempt, "\0ü")
            kind = run.payload
            if kind == "json":
                return {"key": run.idempotency_key, "year": run.scheduled_at.year}
            if kind == "error":
                raise error
            if kind == "permanent":
                raise ValueError("wrapped") from Permanent("never")
            if kind == "later":
                raise RetryAfter("busy", 3600)
            if kind == "snooze" and run.attempt == 1:
                raise Snooze(0.001)
            if kind == "exit":
                raise SystemExit(1)
            return kind

        self.worker(work)
        runs = {kind: self.trigger(kind) for kind in ("text", "json", "error", "permanent", "snooze", "exit", "\0" + "é" * 40_000)}
        later = self.trigger("later")
        done = {kind: self.settled(run) for kind, run in runs.items()}
        self.assertEqual((done["text"]["status"], done["text"].get("output"), done["text"]["attempt"]), ("succeeded", "text", 1))
        self.assertEqual(json.loads(done["json"]["output"]),
                         {"key": done["json"]["idempotency_key"], "year": int(done["json"]["scheduled_at"][:4])})
        self.assertEqual((done["error"]["status"], done["error"]["attempt"], done["error"]["error"]), ("dead", 2, "KeyError: 'who'"))
        self.assertEqual((done["permanent"]["reason"], done["permanent"]["attempt"], done["permanent"]["error"]),
                         ("permanent", 1, "ValueError: wrapped"))
        self.assertEqual((done["snooze"]["status"], done["snooze"]["attempt"]), ("succeeded", 2))
        self.assertEqual(done["exit"]["error"], "SystemExit: 1")
        self.assertEqual(self.client.run_log(runs["error"])["text"], "attempt 2 ?ü\n")
        long = next(r for kind, r in done.items() if kind[0] == "\0")["output"]
        self.assertEqual((long[:2], len(long.encode()) // 2), ("\ufffdé", (64 << 10) // 2 - 1))
        server.eventually(lambda: self.client.get_run(later)["status"] == "retry", "the run waits")
        waiting = self.client.get_run(later)
        self.assertEqual(waiting["attempts"][0].get("error"), "busy")
        self.assertGreater(waiting["ready_at"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3000)))

    def test_many_runs_in_few_slots(self) -> None:
        together, lock, busy, most = threading.Barrier(3), threading.Lock(), 0, 0

        def work(run: Run) -> None:
            nonlocal busy, most
            with lock:
                busy += 1
                most = max(most, busy)
            together.wait(server.LIMIT)  # nobody ends before three have begun
            with lock:
                busy -= 1

        self.worker(work, concurrency=3)
        for run in [self.trigger() for _ in range(30)]:
            self.assertEqual((self.settled(run)["status"], self.settled(run)["attempt"]), ("succeeded", 1))
        self.assertEqual(most, 3)

    def test_log_while_running(self) -> None:
        go = threading.Event()

        def work(run: Run) -> None:
            run.log("first")
            go.wait(server.LIMIT)
            for number in range(4000):
                run.log(f"{number:06} " + "é" * 20)

        self.worker(work)
        run = self.trigger()
        server.eventually(lambda: self.client.run_log(run)["text"] == "first\n", "the log is there while the handler runs")
        go.set()
        self.settled(run)
        log = self.client.run_log(run)
        self.assertEqual(log["next_offset"], 6 + 4000 * 48)
        self.assertTrue(log["text"].endswith("003999 " + "é" * 20 + "\n"))
        self.assertEqual(log["offset"], log["next_offset"] - len(log["text"].encode()))
        self.assertLessEqual(len(log["text"].encode()), 64 << 10)

    def test_cancel(self) -> None:
        causes: list[str | None] = []

        def work(run: Run) -> str:
            run.ended.wait(server.LIMIT)
            causes.append(run.cause)
            if run.payload:
                return "done nevertheless"
            raise InterruptedError

        self.worker(work)
        runs = [self.trigger(payload) for payload in (None, True)]
        server.eventually(lambda: all(self.client.get_run(run)["status"] == "running" for run in runs), "both run")
        for run in runs:
            self.client.cancel_run(run)
        first, second = map(self.settled, runs)
        self.assertEqual((first["status"], first.get("error")), ("cancelled", "the run was cancelled"))
        self.assertEqual((second["status"], second.get("output")), ("succeeded", "done nevertheless"))
        self.assertEqual(causes, ["cancelled", "cancelled"])

    def test_timeout_and_a_handler_that_is_stuck(self) -> None:
        release, causes = threading.Event(), []

        def work(run: Run) -> None:
            if run.payload == "stuck":
                release.wait(server.LIMIT)
            run.ended.wait(server.LIMIT)
            causes.append(run.cause)
            raise TimeoutError

        worker = self.worker(work, concurrency=2)
        runs = [self.trigger(payload, timeout_seconds=1, max_retries=0) for payload in ("stuck", "polite")]
        for run in map(self.settled, runs):
            self.assertEqual((run["status"], run.get("error"), run["attempt"]), ("dead", "no answer within 1s", 1))
        self.assertEqual((causes, len(worker._busy)), (["timed_out"], 1))  # its slot stays in use
        release.set()
        server.eventually(lambda: not worker._busy, "the slot is free again")

    def test_lost_lease(self) -> None:
        seen: list[Run] = []

        def work(run: Run) -> str:
            seen.append(run)
            if run.attempt > 1:
                return "second"
            run.ended.wait(server.LIMIT)
            return "late"

        self.worker(work, concurrency=1)
        run = self.trigger()
        server.eventually(lambda: seen, "it runs")
        # Another process ends the attempt: the run is given away.
        result = {"run_id": run, "attempt": 1, "token": seen[0]._token, "outcome": "interrupted"}
        self.assertEqual(self.post(seen[0]._incarnation, "finish", {"results": [result]})["verdicts"], ["accepted"])
        self.assertEqual(self.settled(run).get("output"), "second")
        self.assertEqual(seen[0].cause, "lease_lost")

    def test_unknown_worker_gets_a_new_incarnation(self) -> None:
        seen: list[Run] = []

        def work(run: Run) -> str:
            seen.append(run)
            if len(seen) > 1:
                return "again"
            run.ended.wait(server.LIMIT)
            raise InterruptedError

        worker = self.worker(work)
        run = self.trigger()
        server.eventually(lambda: seen, "it runs")
        before = worker._incarnation
        result = {"run_id": run, "attempt": 1, "token": seen[0]._token, "outcome": "interrupted"}
        self.post(before, "finish", {"results": [result]})
        self.post(before, "heartbeat", {"leave": True})
        self.assertEqual(self.settled(run).get("output"), "again")
        self.assertEqual(seen[0].cause, "lease_lost")
        self.assertNotEqual(worker._incarnation, before)

    def test_drain_lets_handlers_finish(self) -> None:
        started, go = threading.Event(), threading.Event()

        def work(run: Run) -> str:
            started.set()
            go.wait(server.LIMIT)
            return "finished"

        worker = self.worker(work, concurrency=1)
        first = self.trigger()
        self.assertTrue(started.wait(server.LIMIT))
        second = self.trigger()
        worker.stop()
        server.eventually(lambda: not worker._claiming, "nothing more is claimed")
        go.set()
        self.assertIsNone(self.end(worker))
        self.assertEqual(self.client.get_run(first).get("output"), "finished")
        self.assertEqual((self.client.get_run(second)["status"], self.client.get_run(second)["attempt"]), ("ready", 0))
        with urllib.request.urlopen(self.address + "/api/v1/fleet") as answer:
            self.assertNotIn(worker._incarnation, answer.read().decode())
        self.assertRaises(ValueError, worker.run)

    def test_drain_interrupts(self) -> None:
        release, causes = threading.Event(), []
        self.addCleanup(release.set)

        def work(run: Run) -> None:
            run.ended.wait(server.LIMIT)
            causes.append(run.cause)
            if run.payload == "stuck":
                release.wait(server.LIMIT)
            raise InterruptedError

        worker = self.worker(work, drain_timeout=0.1)
        runs = [self.trigger(payload) for payload in ("stuck", "polite")]
        server.eventually(lambda: len(worker._busy) == 2, "both run")
        self.assertIsNone(self.end(worker))
        self.assertEqual(causes, ["interrupted"] * 2)
        for run in map(self.client.get_run, runs):  # returned at once, and no retry was used
            self.assertEqual((run["status"], run["attempts"][0]["outcome"]), ("ready", "interrupted"))

    def test_drain_with_results_that_are_not_accepted(self) -> None:
        worker = self.worker(lambda run: "lost")
        worker._flush = 0.5
        self.proxy.fault = lambda path: "refuse" if path.endswith("finish") else ""
        self.trigger()
        server.eventually(lambda: worker._unsent, "there is a result")
        self.assertIn("1 results", str(self.end(worker)))

    def test_results_are_sent_until_they_are_accepted(self) -> None:
        faults: list[str | int] = ["refuse", "lose", 503]
        self.proxy.fault = lambda path: faults.pop(0) if faults and path.endswith("finish") else ""
        self.worker(lambda run: "done")
        run = self.settled(self.trigger())
        self.assertEqual((run["status"], run["attempt"], run.get("output")), ("succeeded", 1, "done"))
        server.eventually(lambda: not faults and len([p for p, _ in self.proxy.seen if p.endswith("finish")]) == 4, "four tries")

    def test_results_that_are_rejected(self) -> None:
        faults: list[str | int] = [413]
        self.proxy.fault = lambda path: faults.pop(0) if faults and path.endswith("finish") else ""
        worker = self.worker(lambda run: run.log("much") or "much", concurrency=1)
        run = self.settled(self.trigger())  # it is sent again without what may be too large
        self.assertEqual((run["status"], run.get("output"), self.client.run_log(run["run_id"])["text"]), ("succeeded", None, ""))
        faults += [413, 413]
        lost = self.trigger()
        server.eventually(lambda: not faults and not worker._unsent, "the result is dropped")
        self.assertEqual(self.client.get_run(lost)["status"], "running")

    def test_a_run_that_is_cancelled_before_it_arrives(self) -> None:
        started: list[str] = []
        worker = self.worker(lambda run: started.append(run.id))
        self.proxy.fault = lambda path: "late" if path.endswith("claim") else ""
        claims = len([path for path, _ in self.proxy.seen if path.endswith("claim")])
        server.eventually(lambda: len([path for path, _ in self.proxy.seen if path.endswith("claim")]) > claims, "a claim is late")
        run = self.trigger()
        server.eventually(lambda: self.client.get_run(run)["status"] == "running", "it is claimed")
        self.client.cancel_run(run)
        server.eventually(lambda: worker._cancelled, "the worker knows")
        self.proxy.healed.set()
        done = self.settled(run)
        self.assertEqual((done["status"], done.get("error"), started),
                         ("cancelled", "the run was cancelled before it was started", []))

    def test_nothing_starts_without_heartbeats(self) -> None:
        started: list[str] = []
        worker = self.worker(lambda run: started.append(run.id))
        worker._lease = 0.5
        self.settled(self.trigger())
        self.proxy.fault = lambda path: "refuse" if path.endswith("heartbeat") else ""
        server.eventually(lambda: not worker._may_start() and not self.proxy.busy, "the lease expires, and the last claim has ended")
        run = self.trigger()
        server.eventually(lambda: "fired_at" in self.client.get_run(run), "the run is fired")
        claims = len([path for path, _ in self.proxy.seen if path.endswith("claim")])
        time.sleep(0.5)  # nothing happens
        self.assertEqual(claims, len([path for path, _ in self.proxy.seen if path.endswith("claim")]))
        self.assertEqual((self.client.get_run(run)["status"], len(started)), ("ready", 1))
        self.proxy.fault = lambda path: ""
        self.assertEqual(self.settled(run)["status"], "succeeded")

    def test_outage(self) -> None:
        self.outage(2, fast=True)

    @unittest.skipUnless(os.environ.get("BELFRY_TEST_CHAOS"), "a minute, for make chaos")
    def test_outage_of_a_minute(self) -> None:
        self.outage(60, fast=False)

    def outage(self, seconds: float, fast: bool) -> None:
        """A worker that is cut off keeps its results, comes back by itself and loses nothing."""
        started, go = threading.Semaphore(0), threading.Event()

        def work(run: Run) -> str:
            started.release()
            go.wait(server.LIMIT)
            return f"attempt {run.attempt}"

        if fast:
            worker = self.worker(work, concurrency=4)
            worker._lease = 1.0
        else:
            worker = Worker(self.connect(self.proxy.address), concurrency=4)
            worker.handler("work")(work)
            self.begin(worker)
        runs = [self.trigger(timeout_seconds=600) for _ in range(8)]
        for _ in range(4):
            self.assertTrue(started.acquire(timeout=server.LIMIT))
        before = worker._incarnation
        self.proxy.fault = lambda path: "refuse"
        server.eventually(lambda: worker._failing >= {"heartbeat"}, "the worker notices")
        go.set()  # handlers finish while nothing can be sent
        server.eventually(lambda: len(worker._unsent) == 4, "results are kept")
        begin = time.monotonic()
        if fast:
            self.post(before, "heartbeat", {"leave": True})  # as if it had been silent for too long
        while time.monotonic() - begin < seconds:
            time.sleep(0.1)
        self.assertEqual(len(worker._unsent), 4)
        self.proxy.fault = lambda path: ""
        for run in map(self.settled, runs):
            self.assertEqual(run["status"], "succeeded")
        server.eventually(lambda: not worker._unsent and not worker._failing, "all is sent")
        self.assertNotEqual(worker._incarnation, before)


if __name__ == "__main__":
    unittest.main()
