package importer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func cronJobJSON(spec, job, container string) string {
	return fmt.Sprintf(`{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "clean.up"},
		"spec": {%s, "jobTemplate": {"spec": {%s "template": {"spec": {"containers": [%s]}}}}}}`, spec, job, container)
}

const cleanContainer = `{"image": "busybox:1.36", "command": ["/bin/clean"]}`

func importObjects(t *testing.T, texts ...string) []Entry {
	t.Helper()
	var documents []Document
	for i, text := range texts {
		documents = append(documents, Document{Line: i + 1, JSON: []byte(text)})
	}
	result, err := Kubernetes(documents, Options{Now: newYear})
	if err != nil {
		t.Fatal(err)
	}
	return result.Entries
}

func TestKubernetesCronJob(t *testing.T) {
	e := importObjects(t, cronJobJSON(
		`"schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 200, "suspend": true`,
		`"activeDeadlineSeconds": 600, "backoffLimit": 2,`,
		`{"image": "shop:7", "command": ["clean"], "args": ["--all", "$(DAYS)"], "workingDir": "/srv",
		  "env": [{"name": "DAYS", "value": "30"}, {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "p"}}}], "envFrom": [{}]}`))[0]
	job := belfry.Manifest{Name: "clean-up", Status: belfry.StatusPaused, Payload: []byte(`{"command":"clean-up"}`), Spec: belfry.Spec{
		Type: "command", Schedule: "30 2 * * *", Timezone: "Europe/Berlin", Overlap: belfry.OverlapSkip, CatchUpSeconds: 200, TimeoutSeconds: 600,
		MaxRetries: belfry.Some(2), RetryBaseSeconds: belfry.Some(10.0), RetryCapSeconds: belfry.Some(360.0),
	}}
	if !reflect.DeepEqual(e.Job, job) {
		t.Errorf("got  %+v\nwant %+v", e.Job, job)
	}
	command := Command{Argv: []string{"/usr/bin/env", "clean", "--all", "$(DAYS)"}, Directory: "/srv", Environment: map[string]string{"DAYS": "30"}}
	if !reflect.DeepEqual(*e.Command, command) {
		t.Errorf("got  %+v\nwant %+v", *e.Command, command)
	}
	for i, want := range []string{"activeDeadlineSeconds", `"shop:7" is not run`, "$(NAME)", `["PASSWORD"]`, "envFrom"} {
		if i >= len(e.Warnings) || !strings.Contains(e.Warnings[i], want) {
			t.Errorf("the warnings are %q, want %q at %d", e.Warnings, want, i)
		}
	}
}

func TestKubernetesDefaults(t *testing.T) {
	e := importObjects(t, cronJobJSON(`"schedule": "@hourly", "concurrencyPolicy": "Replace"`, ``, `{"image": "x"}`))[0]
	if e.Job.MaxRetries != belfry.Some(6) || e.Job.Overlap != belfry.OverlapSkip || e.Job.TimeoutSeconds != 86400 || e.Job.Status != belfry.StatusPaused {
		t.Errorf("got %+v", e.Job)
	}
	if text := fmt.Sprint(e.Warnings); !strings.Contains(text, "Replace") || !strings.Contains(text, "write its path") {
		t.Errorf("the warnings are %q", e.Warnings)
	}
	if e := importObjects(t, cronJobJSON(`"schedule": "@hourly"`, ``, cleanContainer))[0]; e.Job.Overlap != belfry.OverlapParallel || e.Job.Status != "" || e.Command.Argv[0] != "/bin/clean" {
		t.Errorf("got %+v", e.Job)
	}
}

// The day fields of Kubernetes are combined by OR unless one is a * without a step.
func TestKubernetesSchedules(t *testing.T) {
	for text, want := range map[string]string{
		"0 9 * * 1-5":                   "0 9 * * 1-5",
		"0 0 */2 * 5":                   "0 0 1-31/2 * 5",
		"0 0 13 * */3":                  "0 0 13 * 0-6/3",
		"0 0 */2 * *":                   "0 0 */2 * *",
		"0 0 5,* * MON":                 "0 0 * * MON",
		"0 0 ? * MON":                   "0 0 * * MON",
		"0 0 1 * ?":                     "0 0 1 * *",
		"0 0 */1 * 1,*/1":               "0 0 * * *",
		"@every 1h30m":                  "@every 1h30m",
		"TZ=Asia/Tokyo 0 9 * * *":       "0 9 * * * Asia/Tokyo",
		" CRON_TZ=Asia/Tokyo  @daily  ": "@daily Asia/Tokyo",
	} {
		e := importObjects(t, cronJobJSON(fmt.Sprintf(`"schedule": %q`, text), ``, cleanContainer))[0]
		if got := strings.TrimSpace(e.Job.Schedule + " " + e.Job.Timezone); got != want {
			t.Errorf("%q: got %q, want %q (%s)", text, got, want, e.LeftOut)
		}
	}
}

func TestKubernetesKinds(t *testing.T) {
	job := cronJobJSON(`"schedule": "@daily"`, ``, cleanContainer)
	entries := importObjects(t,
		`{"kind": "List", "items": [`+job+`, {"kind": "ConfigMap"}, {"kind": "List", "items": []}]}`,
		`{"kind": "CronJobList", "items": [`+job+`]}`,
		`{"kind": "Deployment", "spec": {"schedule": 5}}`,
		`[1]`,
		`{"kind": "CronJob", "spec": {"schedule": 5}}`,
		cronJobJSON(`"schedule": "@daily"`, ``, ``),
		cronJobJSON(`"schedule": "61 * * * *"`, ``, cleanContainer))
	want := []string{"clean-up", `kind "ConfigMap"`, `kind "List"`, "clean-up-2", `kind "Deployment"`, "no kind", "cannot unmarshal", "no container", "minute 61"}
	for i, e := range entries {
		if i >= len(want) || !strings.Contains(e.Job.Name+e.LeftOut, want[i]) {
			t.Fatalf("entry %d is %+v, want %s", i, e, want)
		}
	}
	if len(entries) != len(want) {
		t.Errorf("%d entries, want %d", len(entries), len(want))
	}
}

func FuzzKubernetes(f *testing.F) {
	f.Add(cronJobJSON(`"schedule": "0 0 */2 * ?", "timeZone": "UTC"`, `"backoffLimit": -1,`, cleanContainer))
	f.Add(`{"kind": "List", "items": [null, {"kind": "CronJob"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		result, _ := Kubernetes([]Document{{1, []byte(text)}}, Options{Now: newYear})
		for _, e := range result.Entries {
			if e.LeftOut == "" && (e.Job.Name == "" || len(e.Command.Argv) == 0) {
				t.Errorf("%q became %+v", text, e)
			}
		}
	})
}
