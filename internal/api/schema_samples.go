package api

import (
	"encoding/json"
	"slices"
)

// samples are values that members may have, as JSON. What has none is left out of
// the examples that are made of them. One job and its runs go through all of
// them, so that the examples of the reference fit each other.
var samples = map[string]string{
	"Job.id":          `"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55"`,
	"Job.namespace":   `"default"`,
	"Job.name":        `"nightly-report"`,
	"Job.tags":        `["billing", "reports"]`,
	"Job.revision":    `3`,
	"Job.status":      `"scheduled"`,
	"Job.payload":     `{"url": "https://example.com/hooks/report", "headers": {"Authorization": "***"}, "body": {"format": "pdf"}}`,
	"Job.next_run_at": `"2026-12-02T01:30:00Z"`,
	"Job.last_run_at": `"2026-12-01T01:30:00Z"`,
	"Job.created_at":  `"2026-11-15T09:12:44.108Z"`,
	"Job.updated_at":  `"2026-11-20T16:03:10.551Z"`,

	"Spec.type":               `"http"`,
	"Spec.schedule":           `"30 2 * * *"`,
	"Spec.timezone":           `"Europe/Paris"`,
	"Spec.missed_window":      `"run_once"`,
	"Spec.queue":              `"default"`,
	"Spec.priority":           `"normal"`,
	"Spec.overlap":            `"skip"`,
	"Spec.timeout_seconds":    `60`,
	"Spec.max_retries":        `3`,
	"Spec.retry_backoff":      `"exponential"`,
	"Spec.retry_base_seconds": `5`,
	"Spec.retry_cap_seconds":  `1800`,
	"Spec.retry_jitter":       `0.25`,

	"JobInput.dst_gap":        `"run"`,
	"JobInput.dst_overlap":    `"auto"`,
	"JobInput.starts_at":      `"2027-01-01T00:00:00+01:00"`,
	"JobInput.ends_at":        `"2027-12-31T23:59:59+01:00"`,
	"JobInput.max_runs":       `100`,
	"JobInput.jitter_seconds": `300`,

	"JobInput.max_missed":              `100`,
	"JobInput.catch_up_window_seconds": `3600`,
	"JobInput.max_queued":              `10`,
	"JobInput.retry_delays":            `[5, 30, 120]`,
	"JobInput.retention_days":          `30`,
	"JobInput.payload":                 `{"url": "https://example.com/hooks/report", "body": {"format": "pdf"}}`,
	"JobInput.status":                  `"active"`,

	"HTTPPayload.url":     `"https://example.com/hooks/report"`,
	"HTTPPayload.method":  `"POST"`,
	"HTTPPayload.headers": `{"Accept": "application/json"}`,
	"HTTPPayload.body":    `{"format": "pdf"}`,

	"Revision.revision":    `2`,
	"Revision.replaced_at": `"2026-11-20T16:03:10.551Z"`,

	"Run.id":              `"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08"`,
	"Run.job_id":          `"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55"`,
	"Run.namespace":       `"default"`,
	"Run.revision":        `3`,
	"Run.kind":            `"scheduled"`,
	"Run.status":          `"succeeded"`,
	"Run.scheduled_at":    `"2026-12-01T01:30:00Z"`,
	"Run.ready_at":        `"2026-12-01T01:30:00Z"`,
	"Run.fired_at":        `"2026-12-01T01:30:00.004Z"`,
	"Run.attempt":         `2`,
	"Run.started_at":      `"2026-12-01T01:30:05.310Z"`,
	"Run.finished_at":     `"2026-12-01T01:30:05.944Z"`,
	"Run.worker":          `"01a22f26-c640-7e02-8a41-d3c07b9e6f14"`,
	"Run.http_status":     `200`,
	"Run.output":          `"{\"pages\": 12}"`,
	"Run.idempotency_key": `"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55:1796088600"`,

	"Attempt.attempt":     `1`,
	"Attempt.outcome":     `"failed"`,
	"Attempt.worker":      `"01a22f26-c640-7e02-8a41-d3c07b9e6f14"`,
	"Attempt.started_at":  `"2026-12-01T01:30:00.006Z"`,
	"Attempt.finished_at": `"2026-12-01T01:30:00.191Z"`,
	"Attempt.http_status": `503`,
	"Attempt.error":       `"the target answered 503"`,

	"Problem.type":       `"about:blank"`,
	"Problem.title":      `"Unprocessable Entity"`,
	"Problem.status":     `422`,
	"Problem.detail":     `"the job is not valid"`,
	"Problem.code":       `"invalid"`,
	"Problem.request_id": `"01a22f39-2d30-7f6e-b1d2-6a90c3e7f5b8"`,
	"Fault.field":        `"schedule"`,
	"Fault.message":      `"column 1: minute 61 is out of range, it goes from 0 to 59; for example \"*/15 * * * *\""`,

	"ClaimedRun.job_name":        `"send-invoices"`,
	"ClaimedRun.queue":           `"default"`,
	"ClaimedRun.handler":         `"send-invoice"`,
	"ClaimedRun.attempt":         `1`,
	"ClaimedRun.token":           `"9f86d081884c7d659a2feaa0c55ad015"`,
	"ClaimedRun.timeout_seconds": `60`,
	"ClaimedRun.deadline_at":     `"2026-12-01T01:31:05.310Z"`,
	"ClaimedRun.payload":         `{"customer": 4711}`,

	"Beat.node":     `"billing-1"`,
	"Beat.slots":    `10`,
	"Beat.lanes":    `["default/send-invoice"]`,
	"Beat.register": `true`,
	"Held.run_id":   `"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08"`,
	"Held.attempt":  `1`,

	"Claim.lanes":        `["default/send-invoice"]`,
	"Claim.limit":        `10`,
	"Claim.wait_seconds": `20`,
	"Result.outcome":     `"succeeded"`,
	"Result.output":      `"sent to 3 customers"`,
	"Result.error":       ``,
	"Result.http_status": ``,

	"PreviewInput.after":   `"2027-03-27T12:00:00Z"`,
	"PreviewInput.count":   `2`,
	"Preview.zone_version": `"2025c"`,
	"Preview.description":  `"At 02:30 every day in Europe/Paris"`,
	"Preview.warnings":     `["28 Mar 2027 02:30 does not exist in Europe/Paris: runs 03:00"]`,
	"Occurrence.at":        `"2027-03-28T01:00:00Z"`,
	"Occurrence.local":     `"2027-03-28T03:00:00+02:00"`,
	"Occurrence.weekday":   `"Sunday"`,
	"Occurrence.note":      `"02:30 does not exist that day: runs at 03:00"`,

	"Rollback.revision":    `2`,
	"TriggerInput.payload": `{"format": "csv"}`,
	"Triggered.run_id":     `"01a22f3a-7b08-8d3b-a6c4-90e15f7b2d08"`,
	"Imported.created":     `2`,
	"Imported.ids":         `["01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55", "01a1de7a-fae0-7c1b-8e02-55d17c9b3a60"]`,
	"Directory.name":       `"belfry"`,
	"Directory.paths":      `["POST /api/v1/jobs", "GET /api/v1/jobs"]`,

	"Orders.unknown": `false`,
	"Orders.lost":    `[]`,
	"Orders.cancel":  `[]`,

	"ResumeInput.catch_up": `true`,

	"DeadLetter.status":      `"dead"`,
	"DeadLetter.reason":      `"out_of_retries"`,
	"DeadLetter.attempt":     `4`,
	"DeadLetter.http_status": `503`,
	"DeadLetter.output":      ``,
	"DeadLetter.error":       `"the target answered 503"`,
	"DeadLetter.job_name":    `"nightly-report"`,
	"DeadLetter.fingerprint": `"3f9a0c51d2e87b46"`,
	"DeadLetter.payload":     `{"url": "https://example.com/hooks/report", "headers": {"Authorization": "***"}, "body": {"format": "pdf"}}`,

	"DeadGroup.fingerprint": `"3f9a0c51d2e87b46"`,
	"DeadGroup.count":       `17`,
	"DeadGroup.jobs":        `2`,
	"DeadGroup.error":       `"the target answered 503"`,
	"DeadGroup.http_status": `503`,
	"DeadGroup.first_at":    `"2026-11-30T01:31:12.020Z"`,
	"DeadGroup.last_at":     `"2026-12-01T01:30:05.944Z"`,
	"DeadGroup.latest":      `"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08"`,

	"Decided.matched":  `17`,
	"Decided.done":     `17`,
	"Decided.more":     `false`,
	"Redriven.last_at": `"2026-12-01T09:15:03.400Z"`,

	"Acted.matched":        `213`,
	"Acted.done":           `212`,
	"ActionFailure.job_id": `"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55"`,
	"ActionFailure.name":   `"nightly-report"`,
	"ActionFailure.error":  `"the job has ended; create it again"`,

	"Backfilled.count":    `2`,
	"Backfilled.instants": `["2026-11-29T01:30:00Z", "2026-11-30T01:30:00Z"]`,
	"Backfilled.runs":     `["01a224ec-ae40-8d3b-a6c4-90e15f7b2d08", "01a22a13-0a40-8d3b-a6c4-90e15f7b2d08"]`,
	"Backfilled.more":     `false`,

	"Why.at":              `"2026-12-01T01:30:00Z"`,
	"Why.decision":        `"ran"`,
	"Why.sentence":        `"2026-12-01 02:30 +01:00 ran: it succeeded in the second attempt."`,
	"Why.revision":        `3`,
	"Why.previous":        `"2026-11-30T01:30:00Z"`,
	"Why.next":            `"2026-12-02T01:30:00Z"`,
	"WhyRule.description": `"At 02:30 every day in Europe/Paris"`,

	"Event.id":        `"01a22f39-15c0-8a11-b0c4-6d1e5f7b2d08"`,
	"Event.namespace": `"default"`,
	"Event.job_id":    `"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55"`,
	"Event.kind":      `"large_catch_up"`,
	"Event.at":        `"2026-12-01T01:30:00.004Z"`,
	"Event.message":   `"40 runs make up for what \"nightly-report\" missed"`,
	"Event.count":     `40`,
}

// sample makes an example of a schema out of those of its members. It is nil if
// there are none.
func (s *schemas) sample(of *schema) json.RawMessage {
	if of == nil {
		return nil
	}
	if len(of.Examples) > 0 {
		return of.Examples[0]
	}
	if name, ok := of.refers(); ok {
		target, _ := s.components.get(name)
		return s.sample(target)
	}
	switch {
	case of.Items != nil:
		if item := s.sample(of.Items); item != nil {
			return json.RawMessage("[" + string(item) + "]")
		}
	case len(of.Enum) > 0:
		text, _ := json.Marshal(of.Enum[0])
		return text
	case len(of.Properties) > 0:
		var members ordered[json.RawMessage]
		for _, p := range of.Properties {
			required := slices.Contains(of.Required, p.name)
			if value := s.sample(p.value); value != nil && (required || len(p.value.Examples) > 0 || p.value.Items != nil) {
				members.add(p.name, value)
			}
		}
		text, _ := json.Marshal(members) // The samples are JSON.
		return text
	}
	return nil
}
