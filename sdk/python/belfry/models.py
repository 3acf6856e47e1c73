"""The documents of the API. The reference at /docs/api of a server describes every field. Times are RFC 3339 in UTC."""
from typing import Any, Literal, Required, TypedDict
RunStatus = Literal["ready", "running", "retry", "waiting", "succeeded", "dead", "skipped", "cancelled", "discarded"]
JobType = Literal["http", "worker", "command", "message"]
LIVE = frozenset({"ready", "running", "retry", "waiting"})

_Spec = TypedDict("_Spec", {
    "name": str, "tags": list[str], "description": str, "type": JobType, "handler": str, "timezone": str,
    "dst_gap": Literal["run", "skip"], "dst_overlap": Literal["auto", "first", "both"], "starts_at": str, "ends_at": str,
    "max_runs": int, "jitter_seconds": int, "missed_window": Literal["skip", "run_once", "run_all"], "max_missed": int,
    "catch_up_window_seconds": int, "queue": str, "priority": str | int, "overlap": Literal["skip", "queue", "parallel"],
    "max_queued": int, "timeout_seconds": int, "max_retries": int, "retry_on": Literal["all", "server_errors"],
    "retry_backoff": Literal["immediate", "fixed", "linear", "exponential", "list"], "retry_base_seconds": float,
    "retry_cap_seconds": float, "retry_jitter": float, "retry_delays": list[float], "retention_days": int,
    "idempotency_key_template": str, "payload": Any,
}, total=False)


class Manifest(_Spec, total=False):
    """A job as it is declared. Fields that are left out have their defaults."""
    schedule: Required[str]
    status: Literal["active", "paused", "scheduled"]


LastResult = TypedDict("LastResult", {
    "status": Required[Literal["succeeded", "failed", "dead", "skipped", "cancelled", "discarded"]],
    "run_id": Required[str], "at": Required[str], "failures": int, "error": str,
}, total=False)


_Shown = TypedDict("_Shown", {
    "job_id": Required[str], "namespace": Required[str], "schedule": Required[str], "status": Required[str],
    "revision": Required[int], "next_run_at": Required[str | None], "last_run_at": Required[str | None],
    "created_at": Required[str], "updated_at": Required[str], "resolved_schedule": str, "last_result": LastResult,
    "warnings": list[str], "quarantined": str, "ended_at": str,
}, total=False)


class Job(_Spec, _Shown):
    """A job as the server shows it. Values of the payload that look like secrets are "***"."""


# An attempt that did not succeed.
Attempt = TypedDict("Attempt", {
    "attempt": Required[int], "outcome": Required[str], "worker_id": Required[str], "started_at": Required[str],
    "finished_at": Required[str], "http_status": int, "error": str, "output": str, "late_outcome": str, "late_at": str,
}, total=False)

# A run as the server shows it.
RunRecord = TypedDict("RunRecord", {
    "run_id": Required[str], "job_id": Required[str], "namespace": Required[str], "revision": Required[int],
    "kind": Required[Literal["scheduled", "manual", "backfill"]], "status": Required[RunStatus], "scheduled_at": Required[str],
    "ready_at": Required[str], "attempt": Required[int], "started_at": Required[str | None], "finished_at": Required[str | None],
    "job_name": str, "fired_at": str, "worker_id": str, "http_status": int, "output": str, "error": str, "reason": str,
    "cancel_requested_at": str, "skipped_to": str, "skipped_count": int, "idempotency_key": str, "trace_id": str, "note": str,
    "attempts": list[Attempt],
}, total=False)

# The log of an attempt from an offset on.
RunLog = TypedDict("RunLog", {"run_id": str, "attempt": int, "offset": int, "text": str, "next_offset": int})

# They select jobs and runs. Fields that are left out match everything.
JobFilter = TypedDict("JobFilter", {
    "status": Literal["scheduled", "queued", "running", "paused", "completed", "failed", "cancelled", "failing"],
    "type": JobType, "handler": str, "queue": str, "tags": list[str], "search": str,
}, total=False)
RunFilter = TypedDict("RunFilter", {"job": str, "status": RunStatus, "since": str, "until": str}, total=False)
