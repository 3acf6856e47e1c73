"""A Belfry worker with nothing but the standard library: it claims, heartbeats and finishes.

    BELFRY_SERVER=http://127.0.0.1:7070 python3 worker.py
"""
import contextlib, http.client, json, os, signal, threading, time, urllib.request, uuid

SERVER = os.environ.get("BELFRY_SERVER", "http://127.0.0.1:7070")
SLOTS = 4
TROUBLE = OSError, http.client.HTTPException  # a server that is away for a while is no reason to end
worker = str(uuid.uuid4())                    # drawn anew at every start
held = set()                                  # pairs of a run and the attempt of it that is ours
stop = threading.Event()


def greet(run):  # what it returns is kept as the output; if it raises, the run is tried again
    return "hello, %s; key %s" % (run["payload"]["who"], run["idempotency_key"])


HANDLERS = {"greet": greet}


def lanes():
    return ["default/" + name for name in HANDLERS]


def call(verb, body, timeout):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("BELFRY_KEY", "none")}
    request = urllib.request.Request(f"{SERVER}/api/v1/workers/{worker}/{verb}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def beat(**more):  # we are alive; what is ours no more is dropped, its result would not count
    global worker
    listed = [{"run_id": run, "attempt": attempt} for run, attempt in held.copy()]
    orders = call("heartbeat", {"node": "python", "slots": SLOTS, "lanes": lanes(), "listed": True, "held": listed, **more}, 4)
    for lost in listed if orders["unknown"] else orders["lost"] or []:
        held.discard((lost["run_id"], lost["attempt"]))
    if orders["unknown"]:  # we were silent for too long: go on as somebody else
        worker = str(uuid.uuid4())
        beat(register=True)


def claim():
    if stop.is_set() or len(held) >= SLOTS:
        return time.sleep(0.1)
    for run in call("claim", {"lanes": lanes(), "limit": SLOTS - len(held), "wait_seconds": 5}, 15)["runs"]:
        held.add((run["id"], run["attempt"]))
        threading.Thread(target=work, args=[run]).start()


def work(run):
    result = {"run_id": run["id"], "attempt": run["attempt"], "token": run["token"], "outcome": "succeeded"}
    try:
        result["output"] = str(HANDLERS[run["handler"]](run))
    except Exception as error:
        result.update(outcome="failed", error=f"{type(error).__name__}: {error}")
    while (run["id"], run["attempt"]) in held:  # until the server has heard it
        try:
            print(run["id"], result["outcome"], *call("finish", {"results": [result]}, 10)["verdicts"], flush=True)
            held.discard((run["id"], run["attempt"]))
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
