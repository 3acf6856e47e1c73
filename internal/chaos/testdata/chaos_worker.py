"""The example worker with handlers that report to the ledger of the chaos tests."""
import os, threading, urllib.parse, urllib.request

import worker


def tell(run, url, ended):
    headers = {
        "Belfry-Run-Id": run["id"], "Belfry-Job-Id": run["job_id"], "Belfry-Attempt": str(run["attempt"]),
        "Belfry-Scheduled-At": run["scheduled_at"], "Idempotency-Key": run["idempotency_key"],
        "Chaos-Worker": os.environ["CHAOS_WORKER"], "Chaos-Ended": ended,
    }
    urllib.request.urlopen(urllib.request.Request(url, b"", headers), timeout=120).close()


def chaos(run, ended):  # does not look whether it shall end
    url = run["payload"]["url"]
    tell(run, url, "")
    tell(run, urllib.parse.urljoin(url, "/ended"), "succeeded")
    return str(run["attempt"])


def polite(run, ended):  # ends when it shall
    url = run["payload"]["url"]
    answered = threading.Thread(target=tell, args=[run, url, ""], daemon=True)
    answered.start()
    while answered.is_alive() and not ended.wait(0.05):
        pass
    tell(run, urllib.parse.urljoin(url, "/ended"), "the run was cancelled" if ended.is_set() else "succeeded")
    if ended.is_set():
        raise InterruptedError
    return str(run["attempt"])


worker.HANDLERS = {"chaos-python": chaos, "chaos-python-polite": polite}
worker.main()
