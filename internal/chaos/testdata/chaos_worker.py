"""The example worker with handlers that report to the receiver of the chaos tests."""
import os, threading, urllib.parse, urllib.request

import worker


def report(run, url, ended):
    headers = {
        "Belfry-Run-Id": run["run_id"], "Belfry-Job-Id": run["job_id"], "Belfry-Attempt": str(run["attempt"]),
        "Belfry-Scheduled-At": run["scheduled_at"], "Idempotency-Key": run["idempotency_key"],
        "Chaos-Worker": os.environ["CHAOS_WORKER"], "Chaos-Ended": ended,
    }
    urllib.request.urlopen(urllib.request.Request(url, b"", headers), timeout=120).close()


def chaos(run, ended):  # ignores that its attempt has ended
    url = run["payload"]["url"]
    report(run, url, "")
    report(run, urllib.parse.urljoin(url, "/ended"), "succeeded")
    return str(run["attempt"])


def polite(run, ended):  # returns when its attempt ends
    url = run["payload"]["url"]
    answered = threading.Thread(target=report, args=[run, url, ""], daemon=True)
    answered.start()
    while answered.is_alive() and not ended.wait(0.05):
        pass
    report(run, urllib.parse.urljoin(url, "/ended"), "the run was cancelled" if ended.is_set() else "succeeded")
    if ended.is_set():
        raise InterruptedError
    return str(run["attempt"])


worker.HANDLERS = {"chaos-python": chaos, "chaos-python-polite": polite}
worker.main()
