"""A worker in Python with handlers that report to the receiver of the chaos tests."""
import os, threading, urllib.parse, urllib.request

from belfry import Client, Run, Worker

worker = Worker(Client(os.environ["BELFRY_SERVER"]), concurrency=4)


def report(run: Run, url: str, ended: str) -> None:
    headers = {
        "Belfry-Run-Id": run.id, "Belfry-Job-Id": run.job_id, "Belfry-Attempt": str(run.attempt),
        "Belfry-Scheduled-At": run.scheduled_at.isoformat(), "Idempotency-Key": run.idempotency_key,
        "Chaos-Worker": os.environ["CHAOS_WORKER"], "Chaos-Ended": ended,
    }
    urllib.request.urlopen(urllib.request.Request(url, b"", headers), timeout=120).close()


@worker.handler("chaos-python")
def chaos(run: Run) -> str:  # ignores that its attempt has ended
    url = run.payload["url"]
    report(run, url, "")
    report(run, urllib.parse.urljoin(url, "/ended"), "succeeded")
    return str(run.attempt)


@worker.handler("chaos-python-polite")
def polite(run: Run) -> str:  # returns when its attempt ends
    url = run.payload["url"]
    answered = threading.Thread(target=report, args=[run, url, ""], daemon=True)
    answered.start()
    while answered.is_alive() and not run.ended.wait(0.05):
        pass
    report(run, urllib.parse.urljoin(url, "/ended"), "the run was cancelled" if run.ended.is_set() else "succeeded")
    if run.ended.is_set():
        raise InterruptedError
    return str(run.attempt)


print("serving chaos-python chaos-python-polite", flush=True)
worker.run()
