// The documents of the API. The reference at /docs/api of a server describes every field. Times are RFC 3339 in UTC.
export type RunStatus = "ready" | "running" | "retry" | "waiting" | "succeeded" | "dead" | "skipped" | "cancelled" | "discarded";
export type JobType = "http" | "worker" | "command" | "message";

interface Spec {
  name?: string; tags?: string[]; description?: string; type?: JobType; handler?: string; schedule: string; timezone?: string;
  dst_gap?: "run" | "skip"; dst_overlap?: "auto" | "first" | "both"; starts_at?: string; ends_at?: string; max_runs?: number;
  jitter_seconds?: number; missed_window?: "skip" | "run_once" | "run_all"; max_missed?: number; catch_up_window_seconds?: number;
  queue?: string; priority?: string | number; overlap?: "skip" | "queue" | "parallel"; max_queued?: number; timeout_seconds?: number;
  max_retries?: number; retry_on?: "all" | "server_errors"; retry_base_seconds?: number; retry_cap_seconds?: number;
  retry_backoff?: "immediate" | "fixed" | "linear" | "exponential" | "list"; retry_jitter?: number; retry_delays?: number[];
  retention_days?: number; idempotency_key_template?: string; payload?: unknown;
}

/** A job as it is declared. Fields that are left out have their defaults. */
export interface Manifest extends Spec { status?: "active" | "paused" | "scheduled" }

export interface LastResult {
  status: "succeeded" | "failed" | "dead" | "skipped" | "cancelled" | "discarded"; run_id: string; at: string;
  failures?: number; error?: string;
}

/** A job as the server shows it. Values of the payload that look like secrets are "***". */
export interface Job extends Spec {
  job_id: string; namespace: string; status: string; revision: number; next_run_at: string | null; last_run_at: string | null;
  created_at: string; updated_at: string; resolved_schedule?: string; last_result?: LastResult; warnings?: string[];
  quarantined?: string; ended_at?: string;
}

/** An attempt that did not succeed. */
export interface Attempt {
  attempt: number; outcome: string; worker_id: string; started_at: string; finished_at: string; http_status?: number;
  error?: string; output?: string; late_outcome?: string; late_at?: string;
}

/** A run as the server shows it. */
export interface RunRecord {
  run_id: string; job_id: string; namespace: string; revision: number; kind: "scheduled" | "manual" | "backfill"; status: RunStatus;
  scheduled_at: string; ready_at: string; attempt: number; started_at: string | null; finished_at: string | null; job_name?: string;
  fired_at?: string; worker_id?: string; http_status?: number; output?: string; error?: string; reason?: string;
  cancel_requested_at?: string; skipped_to?: string; skipped_count?: number; idempotency_key?: string; trace_id?: string;
  note?: string; attempts?: Attempt[];
}

/** The log of an attempt from an offset on, in bytes of UTF-8. */
export interface RunLog { run_id: string; attempt: number; offset: number; text: string; next_offset: number }

/** Selects jobs. Fields that are left out match everything. */
export interface JobFilter {
  status?: "scheduled" | "queued" | "running" | "paused" | "completed" | "failed" | "cancelled" | "failing";
  type?: JobType; handler?: string; queue?: string; tags?: string[]; search?: string;
}

/** Selects runs. Fields that are left out match everything. */
export interface RunFilter { job?: string; status?: RunStatus; since?: string; until?: string }
