"""A Belfry worker that needs only the standard library. It makes three calls: claim, heartbeat and finish.

    BELFRY_SERVER=http://127.0.0.1:7070 python3 worker.py
"""
import contextlib, http.client, json, os, signal, threading, time, urllib.request, uuid

SERVER = os.environ.get("BELFRY_SERVER", "http://127.0.0.1:7070")
SLOTS = 4
UNREACHABLE = OSError, http.client.HTTPException  # errors of a server that is down for a while: calls are retried
worker_id = str(uuid.uuid4())                     # a new one at every start
sequence = 0  # of heartbeats
held = {}                                         # (run_id, attempt) of every attempt that we hold: event that ends it
running = {}                                      # runs whose handlers run, by id
stop = threading.Event()


class Snooze(Exception):  # not yet: call again in that many seconds, which is no failure
    def __init__(self, seconds):
        super().__init__(f"for {seconds:.0f}s")
        self.result = {"outcome": "snoozed", "retry_after_seconds": seconds}


class RetryAfter(Exception):  # a failure that is retried in that many seconds instead of the delay of the job
    def __init__(self, message, seconds):
        super().__init__(message)
        self.result = {"retry_after_seconds": seconds}


class Permanent(Exception):  # a failure that retries cannot fix
    result = {"permanent": True}


def log(run, line):  # a line in the log of the run, which the server shows while the handler runs
    run["log"] += f"{line}\n".encode()


def greet(run, ended):  # what a handler returns is the output of the run; if it raises, the run is retried
    payload = run["payload"]
    if payload["who"] == "":
        raise Permanent("nobody to greet")
    if payload.get("not_before", 0) > time.time():
        raise Snooze(payload["not_before"] - time.time())
    return "hello, %s; key %s" % (payload["who"], run["idempotency_key"])


def crawl(run, ended):  # a thread cannot be stopped from outside: a long handler checks whether its attempt has ended
    for page in range(run["payload"]["pages"]):
        print(run["run_id"], "crawls page", page, flush=True)
        log(run, f"page {page}")
        if ended.wait(1):
            raise InterruptedError
        if page == run["payload"].get("busy"):
            raise RetryAfter("the site is busy", 3600)
    return "all pages"


HANDLERS = {"greet": greet, "crawl": crawl}


def call(verb, body, timeout):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("BELFRY_KEY", "none")}
    request = urllib.request.Request(f"{SERVER}/api/v1/workers/{worker_id}/{verb}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)


def heartbeat(**more):
    global worker_id, sequence
    sequence += 1
    attempts = [{"run_id": run_id, "attempt": attempt} for run_id, attempt in held.copy()]
    body = {"node": "python", "slots": SLOTS, "queue": "default", "handlers": list(HANDLERS), "held": attempts, "complete": True, "sequence": sequence}
    written = [(run, run["sent"], bytes(run["log"][run["sent"]:])) for run in list(running.values())]  # since the last heartbeat
    body["logs"] = [{"run_id": run["run_id"], "attempt": run["attempt"], "token": run["token"], "offset": sent, "text": text.decode()}
                    for run, sent, text in written if text]
    reply = call("heartbeat", body | more, 4)
    for run, sent, text in written:
        run["sent"] = sent + len(text)
    for cancelled in reply["cancel"] or []:  # the run was cancelled: end the attempt, and report that
        if ended := held.get((cancelled["run_id"], cancelled["attempt"])):
            ended.set()
    for lost in attempts if reply["unknown"] else reply["lost"] or []:  # we lost the attempt: its result would be late
        if ended := held.pop((lost["run_id"], lost["attempt"]), None):
            ended.set()
    if reply["unknown"]:  # no heartbeat arrived for too long: continue with a new id
        worker_id = str(uuid.uuid4())
        heartbeat(register=True)


def claim():
    if stop.is_set() or len(held) >= SLOTS:
        return time.sleep(0.1)
    body = {"queue": "default", "handlers": list(HANDLERS), "limit": SLOTS - len(held), "wait_seconds": 5}
    for run in call("claim", body, 15)["runs"]:
        ended = held[run["run_id"], run["attempt"]] = threading.Event()
        threading.Thread(target=work, args=[run, ended]).start()


def work(run, ended):
    attempt = run["run_id"], run["attempt"]
    result = {"run_id": run["run_id"], "attempt": run["attempt"], "token": run["token"], "outcome": "succeeded"}
    run["log"], run["sent"], running[run["run_id"]] = bytearray(), 0, run
    try:
        result["output"] = str(HANDLERS[run["handler"]](run, ended))
    except Exception as error:
        result |= {"outcome": "failed", "error": f"{type(error).__name__}: {error}"} | getattr(error, "result", {})
        if ended.is_set():
            result |= {"outcome": "cancelled", "error": "the run was cancelled"}
    running.pop(run["run_id"], None)
    result["log"] = run["log"].decode()  # all of it; the server keeps the last 64 KiB
    while attempt in held:  # until the server has accepted the result, or we lost the attempt
        try:
            print(run["run_id"], result["outcome"], *call("finish", {"results": [result]}, 10)["verdicts"], flush=True)
            held.pop(attempt, None)
        except UNREACHABLE as error:
            print("finish:", error, flush=True)
            time.sleep(1)


def forever(step, pause):  # until we are stopped and hold nothing
    while held or not stop.is_set():
        try:
            step()
            time.sleep(pause)
        except UNREACHABLE as error:
            print(f"{step.__name__}:", error, flush=True)
            time.sleep(1)


def main():
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *_: stop.set())
    heartbeat(register=True)
    print("serving", *HANDLERS, flush=True)
    threading.Thread(target=forever, args=[heartbeat, 2], daemon=True).start()
    forever(claim, 0)
    with contextlib.suppress(*UNREACHABLE):  # without it the server reaps the worker after a while
        heartbeat(leave=True)


if __name__ == "__main__":
    main()
