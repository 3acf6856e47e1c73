package importer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func importSchedules(t *testing.T, text string) []Entry {
	t.Helper()
	result, err := EventBridge([]byte(text), Options{Now: newYear})
	if err != nil {
		t.Fatal(err)
	}
	return result.Entries
}

func TestEventBridgeSchedule(t *testing.T) {
	entries := importSchedules(t, `{"Name": "Send_Invoices", "Description": "for finance", "State": "DISABLED",
  "ScheduleExpression": "cron(30 2 ? * 2-6 *)", "ScheduleExpressionTimezone": "Europe/Paris",
  "StartDate": "2027-01-01T00:00:00+01:00", "EndDate": 1830297600.5,
  "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15},
  "Target": {"Arn": "arn:aws:sqs:eu-west-3:123456789012:invoices.fifo", "Input": "{\"kind\": \"all\"}", "RetryPolicy": {"MaximumRetryAttempts": 5}, "SqsParameters": {"MessageGroupId": "g"}}}
{"Name": "report", "ScheduleExpression": "rate(5 minutes)", "Target": {"Arn": "arn:aws:lambda:eu-west-3:123456789012:function:report:7", "Input": "plain <aws.scheduler.attempt-number>"}}`)
	want := belfry.Manifest{Name: "send-invoices", Status: belfry.StatusPaused, Spec: belfry.Spec{
		Description: "for finance", Type: "message", Schedule: "30 2 * * MON-FRI", Timezone: "Europe/Paris", DSTGap: belfry.GapSkip, DSTOverlap: belfry.DSTFirst,
		StartsAt: time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC), EndsAt: time.Unix(1830297600, 0).UTC(), JitterSeconds: 900,
		Overlap: belfry.OverlapParallel, MaxRetries: belfry.Some(5),
	}, Payload: []byte(`{"body":{"kind":"all"},"connection":"sqs","key":"g","topic":"https://sqs.eu-west-3.amazonaws.com/123456789012/invoices.fifo"}`)}
	if got := entries[0].Job; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if e := entries[1]; e.Line != 6 || e.Job.Type != "worker" || e.Job.Handler != "report" || e.Job.Schedule != "PT5M" || string(e.Job.Payload) != `"plain \u003caws.scheduler.attempt-number\u003e"` || len(e.Warnings) != 3 {
		t.Errorf("got %+v", e)
	}
}

func TestEventBridgeExpressions(t *testing.T) {
	for text, want := range map[string]string{
		"cron(0 10 * * ? *)":            "0 10 * * *",
		"cron(15 12 ? * 1 *)":           "15 12 * * SUN",
		"cron(0 8 1 * ? *)":             "0 8 1 * *",
		"cron(0/15 8-17 ? * MON-FRI *)": "0/15 8-17 * * MON-FRI",
		"cron(0 18 ? * 6L *)":           "0 18 * * FRIL",
		"cron(0 18 ? * 3#2 *)":          "0 18 * * TUE#2",
		"cron(0 18 ? * L *)":            "0 18 * * SAT",
		"cron(0 18 ? * 2/2 *)":          "0 18 * * MON/2",
		"cron(0 18 ? * 1,3,7 *)":        "0 18 * * SUN,TUE,SAT",
		"cron(0 18 L * ? *)":            "0 18 L * *",
		"cron(0 18 3W * ? *)":           "0 18 3W * *",
		"cron(0 0 1 1 ? 2027-2029)":     "0 0 0 1 1 * 2027-2029",
		"rate(1 hour)":                  "PT1H",
		"rate(2 days)":                  "PT48H",
		"at(2027-03-01T09:00:00)":       "2027-03-01T09:00:00Z",
		"at(2026-03-01T09:00:00)":       "its last time has passed",
		"cron(0 10 * * ? 2020)":         "the schedule never fires",
		"cron(0 10 * * *)":              "has 5 fields instead of 6",
		"rate(5 fortnights)":            "is not a rate",
		"every(5)":                      "is neither",
	} {
		e := importSchedules(t, fmt.Sprintf(`{"Name": "x", "ScheduleExpression": %q}`, text))[0]
		if got := e.Job.Schedule + e.LeftOut; e.LeftOut == "" && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	e := importSchedules(t, `{"ScheduleExpression": "at(2027-03-01T09:00:00)", "ScheduleExpressionTimezone": "Asia/Tokyo"}`)[0]
	if e.Job.Schedule != "2027-03-01T09:00:00" || e.Job.Timezone != "Asia/Tokyo" || e.Job.Name != "job" {
		t.Errorf("got %+v", e)
	}
}

func TestEventBridgeLists(t *testing.T) {
	entries := importSchedules(t, `{"Schedules": [{"Name": "a", "State": "ENABLED", "Target": {"Arn": "x"}}]}
{"Rules": [{"Name": "b", "ScheduleExpression": "rate(1 day)", "State": "ENABLED"}, {"Name": "c", "EventPattern": "{}"}]}
[{"Name": "d", "ScheduleExpression": "rate(1 day)", "Target": {"Arn": "arn:aws:states:us-east-1:1:stateMachine:flow"}, "EndDate": "2026-01-01T00:00:00Z"},
 {"Name": "e", "ScheduleExpression": "rate(1 day)", "Target": {"Arn": "arn:aws:states:us-east-1:1:stateMachine:flow"}}, 7]`)
	want := []string{"get-schedule", "b", "no times", "its last time has passed", "e", "cannot unmarshal"}
	for i, e := range entries {
		if i >= len(want) || !strings.Contains(e.Job.Name+e.LeftOut, want[i]) {
			t.Errorf("entry %d is %+v, want %s", i, e, want)
		}
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d", len(entries), len(want))
	}
	for _, tt := range []struct {
		entry   Entry
		handler string
	}{{entries[1], "b"}, {entries[4], "flow"}} {
		if tt.entry.Job.Status != belfry.StatusPaused || tt.entry.Job.Handler != tt.handler || !strings.Contains(fmt.Sprint(tt.entry.Warnings), "no counterpart") {
			t.Errorf("got %+v, want it paused with the handler %s", tt.entry, tt.handler)
		}
	}
	if _, err := EventBridge([]byte(`{"Name": `), Options{Now: newYear}); err == nil || !strings.Contains(err.Error(), "JSON") {
		t.Errorf("broken JSON: %v", err)
	}
}

func FuzzEventBridge(f *testing.F) {
	f.Add(`{"Name": "a", "ScheduleExpression": "cron(0/5 * ? * 2#1,L 2030)", "StartDate": 1e300, "Target": {"Arn": "arn:aws:sqs:::", "Input": "<"}}`)
	f.Add(`[{"ScheduleExpression": "at(2027-03-01T09:00:00)"}, null, {"ScheduleExpression": "rate(9999999 days)"}]`)
	f.Fuzz(func(t *testing.T, text string) {
		result, _ := EventBridge([]byte(text), Options{Now: newYear})
		for _, e := range result.Entries {
			if e.LeftOut == "" && (e.Job.Name == "" || e.Job.Schedule == "") {
				t.Errorf("%q became %+v", text, e)
			}
			belfry.MustJSON(e.Job)
		}
	})
}
