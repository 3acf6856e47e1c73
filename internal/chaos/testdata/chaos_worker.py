"""The example worker with a handler that reports to the ledger of the chaos tests."""
import os, urllib.parse, urllib.request

import worker


def tell(run, url, ended):
    headers = {
        "Belfry-Run-Id": run["id"], "Belfry-Job-Id": run["job_id"], "Belfry-Attempt": str(run["attempt"]),
        "Belfry-Scheduled-At": run["scheduled_at"], "Idempotency-Key": run["idempotency_key"],
        "Chaos-Worker": os.environ["CHAOS_WORKER"], "Chaos-Ended": ended,
    }
    urllib.request.urlopen(urllib.request.Request(url, b"", headers), timeout=120).close()


def chaos(run, ended):
    url = run["payload"]["url"]
    tell(run, url, "")
    tell(run, urllib.parse.urljoin(url, "/ended"), "succeeded")
    return str(run["attempt"])


worker.HANDLERS = {"chaos-python": chaos}
worker.main()
