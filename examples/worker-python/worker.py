"""A Belfry worker in Python.

    pip install belfry    # or, in a clone of the repository: export PYTHONPATH=sdk/python
    BELFRY_SERVER=http://127.0.0.1:7070 python3 worker.py
"""
import logging, os, time

from belfry import Client, Permanent, RetryAfter, Run, Snooze, Worker

client = Client(os.environ.get("BELFRY_SERVER", "http://127.0.0.1:7070"), key=os.environ.get("BELFRY_KEY"))
worker = Worker(client, concurrency=4)


@worker.handler("greet")
def greet(run: Run) -> str:  # what a handler returns is the output of the run; if it raises, the run is retried
    if run.payload["who"] == "":
        raise Permanent("nobody to greet")
    wait = run.payload.get("not_before", 0) - time.time()
    if wait > 0:
        raise Snooze(wait)
    return f"hello, {run.payload['who']}; key {run.idempotency_key}"


@worker.handler("crawl")
def crawl(run: Run) -> str:  # a thread cannot be stopped from outside: a long handler checks whether its attempt has ended
    for page in range(run.payload["pages"]):
        print(run.id, "crawls page", page, flush=True)
        run.log("page", page)  # in the log of the run, see: belfry run watch
        if run.ended.wait(1):
            raise InterruptedError(run.cause)
        if page == run.payload.get("busy"):
            raise RetryAfter("the site is busy", 3600)
    return "all pages"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    print("serving greet crawl", flush=True)
    worker.run()  # until SIGTERM or SIGINT; then it drains
