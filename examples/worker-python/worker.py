"""A Belfry worker with nothing but the standard library: it claims, heartbeats and finishes.

    BELFRY_SERVER=http://127.0.0.1:7070 python3 worker.py
"""
import contextlib, http.client, json, os, signal, threading, time, urllib.request, uuid

SERVER = os.environ.get("BELFRY_SERVER", "http://127.0.0.1:7070")
SLOTS = 4
TROUBLE = OSError, http.client.HTTPException  # a server that is away for a while is no reason to end
worker = str(uuid.uuid4())                    # drawn anew at every start
held = {}                                     # by run and attempt: what is ours, and an event that ends it
stop = threading.Event()


class Snooze(Exception):  # not yet, which is no failure: call again in so many seconds
    def __init__(self, seconds):
        super().__init__(f"for {seconds:.0f}s")
        self.advice = {"outcome": "snoozed", "retry_after_seconds": seconds}


class RetryAfter(Exception):  # a failure, to be tried again in so many seconds whatever the job's policy says
    def __init__(self, message, seconds):
        super().__init__(message)
        self.advice = {"retry_after_seconds": seconds}


class Permanent(Exception):  # a failure that no retry would change
    advice = {"permanent": True}


def greet(run, ended):  # what it returns is kept as the output; if it raises, the run is tried again
    payload = run["payload"]
    if payload["who"] == "":
        raise Permanent("nobody to greet")
    if payload.get("not_before", 0) > time.time():
        raise Snooze(payload["not_before"] - time.time())
    return "hello, %s; key %s" % (payload["who"], run["idempotency_key"])


def crawl(run, ended):  # nothing can end a thread from outside: what takes long looks whether it shall end
    for page in range(run["payload"]["pages"]):
        print(run["id"], "crawls page", page, flush=True)
        if ended.wait(1):
            raise InterruptedError
        if page == run["payload"].get("busy"):
            raise RetryAfter("the site is busy", 3600)
    return "all pages"


HANDLERS = {"greet": greet, "crawl": crawl}


def lanes():
    return ["default/" + name for name in HANDLERS]


def call(verb, body, timeout):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("BELFRY_KEY", "none")}
    request = urllib.request.Request(f"{SERVER}/api/v1/workers/{worker}/{verb}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def beat(**more):  # we are alive
    global worker
    listed = [{"run_id": run, "attempt": attempt} for run, attempt in held.copy()]
    orders = call("heartbeat", {"node": "python", "slots": SLOTS, "lanes": lanes(), "listed": True, "held": listed, **more}, 4)
    for order in orders["cancel"] or []:  # somebody cancelled it: end it, and say so
        if ended := held.get((order["run_id"], order["attempt"])):
            ended.set()
    for lost in listed if orders["unknown"] else orders["lost"] or []:  # ours no more: its result would not count
        if ended := held.pop((lost["run_id"], lost["attempt"]), None):
            ended.set()
    if orders["unknown"]:  # we were silent for too long: go on as somebody else
        worker = str(uuid.uuid4())
        beat(register=True)


def claim():
    if stop.is_set() or len(held) >= SLOTS:
        return time.sleep(0.1)
    for run in call("claim", {"lanes": lanes(), "limit": SLOTS - len(held), "wait_seconds": 5}, 15)["runs"]:
        ended = held[run["id"], run["attempt"]] = threading.Event()
        threading.Thread(target=work, args=[run, ended]).start()


def work(run, ended):
    result = {"run_id": run["id"], "attempt": run["attempt"], "token": run["token"], "outcome": "succeeded"}
    try:
        result["output"] = str(HANDLERS[run["handler"]](run, ended))
    except Exception as error:
        result.update({"outcome": "failed", "error": f"{type(error).__name__}: {error}"} | getattr(error, "advice", {}))
        if ended.is_set():
            result.update(outcome="cancelled", error="the run was cancelled")
    while (run["id"], run["attempt"]) in held:  # until the server has heard it
        try:
            print(run["id"], result["outcome"], *call("finish", {"results": [result]}, 10)["verdicts"], flush=True)
            held.pop((run["id"], run["attempt"]), None)
        except TROUBLE as error:
            print("finish:", error, flush=True)
            time.sleep(1)


def forever(step, pause):  # until we are told to stop and nothing is left to do
    while held or not stop.is_set():
        try:
            step()
            time.sleep(pause)
        except TROUBLE as error:
            print(f"{step.__name__}:", error, flush=True)
            time.sleep(1)


def main():
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *_: stop.set())
    beat(register=True)
    print("serving", *lanes(), flush=True)
    threading.Thread(target=forever, args=[beat, 5], daemon=True).start()
    forever(claim, 0)
    with contextlib.suppress(*TROUBLE):  # if it is not heard, our silence will be
        beat(leave=True)


if __name__ == "__main__":
    main()
