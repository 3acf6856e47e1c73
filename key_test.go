package belfry

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

var keyJob = ID{0x01, 0x90, 0xb0, 0xf2, 0, 1, 0x70, 0, 0x80, 15: 0xaa}

func inZone(t *testing.T, instant, zone string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, instant)
	if err != nil {
		t.Fatal(err)
	}
	place, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return at.In(place)
}

func TestKeyTemplateRender(t *testing.T) {
	for _, tt := range []struct{ template, instant, zone, want string }{
		{"report-{{week}}", "2026-03-02T09:00:00Z", "UTC", "report-2026-W10"},
		{"{{ job_id }}", "2026-03-02T09:00:00Z", "UTC", keyJob.String()},
		{"{{name}}", "2026-03-02T09:00:00Z", "UTC", "Gr%C3%BC%C3%9Fe%20an%2Falle%2050%25"},
		{"{{scheduled_at}}", "2026-03-02T09:00:00.000001Z", "UTC", "2026-03-02T09:00:00.000001Z"},
		{"{{scheduled_at}}", "2026-03-02T09:00:00Z", "Asia/Kolkata", "2026-03-02T14:30:00+05:30"},
		{"{{unix}}", "2026-03-02T09:00:00Z", "Asia/Tokyo", "1772442000"},
		{"{{date}}", "2026-03-02T20:00:00Z", "UTC", "2026-03-02"},
		{"{{date}}", "2026-03-02T20:00:00Z", "Asia/Tokyo", "2026-03-03"},
		{"{{date}}", "2026-03-02T02:00:00Z", "America/New_York", "2026-03-01"},
		{"{{month}} {{year}}", "2026-12-31T23:30:00Z", "Europe/Paris", "2027-01 2027"},
		{"{{hour}}", "2026-03-02T09:59:59Z", "UTC", "2026-03-02T09+00:00"},
		{"{{hour}}, first", "2026-10-25T00:30:00Z", "Europe/Paris", "2026-10-25T02+02:00, first"},
		{"{{hour}}, second", "2026-10-25T01:30:00Z", "Europe/Paris", "2026-10-25T02+01:00, second"},
		{"{{week}}", "2026-12-31T12:00:00Z", "UTC", "2026-W53"},
		{"{{week}}", "2027-01-03T23:59:59Z", "UTC", "2026-W53"},
		{"{{week}}", "2027-01-03T23:59:59Z", "Asia/Tokyo", "2027-W01"},
		{"{{week}}", "2027-01-04T00:00:00Z", "UTC", "2027-W01"},
		{"{{week}}", "2024-12-30T00:00:00Z", "UTC", "2025-W01"},
		{"{{week}}{{week}}", "2021-01-03T12:00:00Z", "UTC", "2020-W532020-W53"},
		{"{ {date} } {x", "2026-03-02T09:00:00Z", "UTC", "{ {date} } {x"},
		{"always the same", "2026-03-02T09:00:00Z", "UTC", "always the same"},
	} {
		template, err := ParseKeyTemplate(tt.template)
		if err != nil {
			t.Errorf("%s: %v", tt.template, err)
			continue
		}
		if got := template.Render(keyJob, "Grüße an/alle 50%", inZone(t, tt.instant, tt.zone)); got != tt.want {
			t.Errorf("%s at %s in %s is %q, want %q", tt.template, tt.instant, tt.zone, got, tt.want)
		}
		if got, want := template.UsesName(), strings.Contains(tt.template, "name"); got != want {
			t.Errorf("%s uses the name: %v", tt.template, got)
		}
	}
}

func TestKeyTemplateFieldNames(t *testing.T) {
	if len(keyFields) != len(keyFieldNames) {
		t.Fatalf("%d fields and %d names", len(keyFields), len(keyFieldNames))
	}
	for _, name := range keyFieldNames {
		template, err := ParseKeyTemplate("{{" + name + "}}")
		if err != nil {
			t.Fatal(err)
		}
		if key := template.Render(keyJob, "a job", inZone(t, "2026-03-02T09:00:00Z", "UTC")); key == "" {
			t.Errorf("{{%s}} gives nothing", name)
		}
	}
}

func TestKeyTemplateNormalForm(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"report-{{  week }}":     "report-{{week}}",
		"{{date}}/{{ job_id}} !": "{{date}}/{{job_id}} !",
	} {
		template, err := ParseKeyTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.String(); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestInvalidKeyTemplatesAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"{{moon}}":                             "has no field {{moon}}",
		"{{Week}}":                             "{{week}}",
		"{{}}":                                 "has no field {{}}",
		"a {{ {{week}}":                        "has no field",
		"{{week":                               "does not close",
		"week}}":                               "did not open",
		"{{week}} }}":                          "did not open",
		"größe-{{week}}":                       "ASCII",
		"a\n{{week}}":                          "ASCII",
		strings.Repeat("x", 201):               "201 bytes",
		"{{" + strings.Repeat("x", 190) + "}}": "has no field {{xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}}",
	} {
		if _, err := ParseKeyTemplate(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got error %v, want one that says %q", text, err, says)
		}
	}
}

func TestNilKeyTemplate(t *testing.T) {
	template, err := ParseKeyTemplate("")
	if err != nil || template != nil || template.UsesName() || template.Render(keyJob, "x", time.Now()) != "" {
		t.Errorf("got %v, error %v", template, err)
	}
}

func TestKeyTemplateShortensLongKeys(t *testing.T) {
	template, err := ParseKeyTemplate("{{name}} {{date}}")
	if err != nil {
		t.Fatal(err)
	}
	name, at := strings.Repeat("ö", 200), inZone(t, "2026-03-02T09:00:00Z", "UTC")
	today, tomorrow := template.Render(keyJob, name, at), template.Render(keyJob, name, at.AddDate(0, 0, 1))
	if len(today) != 255 || today == tomorrow || !strings.HasPrefix(today, "%C3%B6") {
		t.Errorf("got %q and %q", today, tomorrow)
	}
	if template.Render(keyJob, name, at.Add(time.Hour)) != today {
		t.Error("the same day has two keys")
	}
}

func TestRunKeyWithTemplate(t *testing.T) {
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	run := ID{15: 7}
	for _, tt := range []struct {
		name string
		run  Run
		want string
	}{
		{"scheduled", Run{Kind: KindScheduled}, keyJob.String() + ":1772442000"},
		{"by hand", Run{Kind: KindManual}, keyJob.String() + ":1772442000:" + run.String()},
		{"by a template", Run{Kind: KindScheduled, TemplateKey: "report"}, "report"},
		{"by a template and by hand", Run{Kind: KindManual, TemplateKey: "report"}, "report:" + run.String()},
	} {
		tt.run.ID, tt.run.JobID, tt.run.ScheduledAt = run, keyJob, at
		if got := tt.run.Key(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
