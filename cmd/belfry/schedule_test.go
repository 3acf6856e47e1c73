package main

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestScheduleNext(t *testing.T) {
	p := &testCLI{t: t}
	r := p.ok("schedule", "next", "30 2 * * *", "--timezone", "America/New_York", "--after", "2026-03-07T00:00:00Z")
	want := `LOCAL TIME                      UTC                    WHEN NOTE
Sat 2026-03-07T02:30:00-05:00   2026-03-07T07:30:00Z   ... -
Sun 2026-03-08T03:00:00-04:00   2026-03-08T07:00:00Z   ... 02:30 does not exist that day: runs at 03:00
Mon 2026-03-09T02:30:00-04:00   2026-03-09T06:30:00Z   ... -
Tue 2026-03-10T02:30:00-04:00   2026-03-10T06:30:00Z   ... -
Wed 2026-03-11T02:30:00-04:00   2026-03-11T06:30:00Z   ... -
`
	if d := cmp.Diff(want, timeless(r.out)); d != "" {
		t.Errorf("it printed something else:\n%s", d)
	}
	if want := "Note: 8 Mar 2026 02:30 does not exist in America/New_York: runs 03:00\n"; r.err != want {
		t.Errorf("it said %q, want %q", r.err, want)
	}
	for _, tt := range []struct {
		name string
		args []string
		want []string // in UTC
		says string
	}{
		{"a working day", []string{"0 9 * * MON-FRI", "--after", "2027-01-01T12:00:00+01:00", "--count", "1"}, []string{"2027-01-04T09:00:00Z"}, ""},
		{"a gap that is skipped", []string{"30 2 * * *", "--timezone", "America/New_York", "--after", "2026-03-07T12:00:00Z", "--count", "1", "--dst-gap", "skip"},
			[]string{"2026-03-09T06:30:00Z"}, "is left out"},
		{"both of an overlap", []string{"30 1 * * *", "--timezone", "America/New_York", "--after", "2026-11-01T00:00:00Z", "--count", "2", "--dst-overlap", "both"},
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"}, ""},
		{"between a start and an end", []string{"@daily", "--after", "2027-01-01T00:00:00Z", "--starts-at", "2027-03-01T00:00:00Z", "--ends-at", "2027-03-02T00:00:00Z"},
			[]string{"2027-03-01T00:00:00Z", "2027-03-02T00:00:00Z"}, "the schedule ends there"},
		{"a rule that ends", []string{"R2/2027-03-01T09:00:00Z/PT1H", "--after", "2027-01-01T00:00:00Z"},
			[]string{"2027-03-01T09:00:00Z", "2027-03-01T10:00:00Z"}, "the schedule ends there"},
		{"an interval from now on", []string{"PT1H", "--after", "2027-01-01T00:00:00Z", "--count", "2"},
			[]string{"2027-01-01T01:00:00Z", "2027-01-01T02:00:00Z"}, "this is an example from 2027-01-01T00:00:00Z on"},
		{"so many times from now on", []string{"R2/PT1H", "--after", "2027-01-01T00:00:00Z", "--count", "5"},
			[]string{"2027-01-01T00:00:01Z", "2027-01-01T01:00:01Z"}, "from 2027-01-01T00:00:01Z on"},
		{"an instant that is over", []string{"2020-01-01T00:00:00Z"}, nil, "there are no more occurrences"},
		{"a zone that the text names", []string{"CRON_TZ=Asia/Tokyo 0 9 * * *", "--after", "2027-01-01T00:00:00Z", "--count", "1"}, []string{"2027-01-02T00:00:00Z"}, ""},
		{"an expression behind the flags", []string{"--after", "2027-01-01T00:00:00Z", "--count", "1", "--", "@daily"}, []string{"2027-01-02T00:00:00Z"}, ""},
	} {
		r := p.ok(append([]string{"schedule", "next"}, tt.args...)...)
		got := regexp.MustCompile(`[0-9T:-]{19}Z( |$)`).FindAllString(utcColumn(r.out), -1)
		for i := range got {
			got[i] = strings.TrimSpace(got[i])
		}
		if !slices.Equal(got, tt.want) || !strings.Contains(r.err, tt.says) {
			t.Errorf("%s: got %q, want %q; it said %q, want %q", tt.name, got, tt.want, r.err, tt.says)
		}
	}
}

// utcColumn gives the second column of a table.
func utcColumn(table string) string {
	var b strings.Builder
	for _, row := range columns(table) {
		if len(row) > 1 {
			b.WriteString(row[1] + " ")
		}
	}
	return b.String()
}

func TestScheduleNextIsThePreviewOfTheServer(t *testing.T) {
	p := withServer(t)
	for _, of := range []map[string]any{
		{"schedule": "30 2 * * *", "timezone": "America/New_York", "after": "2026-03-07T00:00:00Z"},
		{"schedule": "30 2 * * *", "timezone": "America/New_York", "after": "2026-03-07T00:00:00Z", "dst_gap": "skip"},
		{"schedule": "0,30 2,3 * * *", "timezone": "America/New_York", "after": "2026-03-08T00:00:00Z", "dst_gap": "skip"},
		{"schedule": "0 2,3 * * *", "timezone": "America/New_York", "after": "2026-03-08T00:00:00Z"},
		{"schedule": "*/10 2 * * *", "timezone": "America/New_York", "after": "2026-03-08T00:00:00Z"},
		{"schedule": "* * 2 * * *", "timezone": "America/New_York", "after": "2026-03-08T00:00:00Z"},
		{"schedule": "*/10 2 * * *", "timezone": "America/New_York", "after": "2026-03-08T00:00:00Z", "dst_gap": "skip"},
		{"schedule": "30 1 * * *", "timezone": "America/New_York", "after": "2026-11-01T00:00:00Z"},
		{"schedule": "30 1 * * *", "timezone": "America/New_York", "after": "2026-11-01T00:00:00Z", "dst_overlap": "both"},
		{"schedule": "*/20 * * * *", "timezone": "America/New_York", "after": "2026-11-01T05:00:00Z", "dst_overlap": "auto"},
		{"schedule": "0 12 * * *", "timezone": "Pacific/Apia", "after": "2011-12-29T12:00:00Z"},
		{"schedule": "DTSTART;TZID=Europe/Paris:20270301T023000 RRULE:FREQ=DAILY", "after": "2027-03-27T00:00:00Z"},
		{"schedule": "FREQ=DAILY;COUNT=3", "timezone": "Europe/Paris", "starts_at": "2027-03-27T02:30:00+01:00", "after": "2027-01-01T00:00:00Z"},
		{"schedule": "PT45M", "after": "2027-01-01T00:00:00Z"},
		{"schedule": "R3/P1D", "timezone": "Asia/Tokyo", "after": "2027-01-01T00:00:00.5Z"},
		{"schedule": "@every 90s", "after": "2027-01-01T00:00:00Z", "ends_at": "2027-01-01T00:03:00Z"},
		{"schedule": " H H(0-5) * * *", "after": "2027-01-01T00:00:00Z", "count": 3},
		{"schedule": "2026-03-08T02:30:00", "timezone": "America/New_York", "after": "2026-01-01T00:00:00Z"},
		{"schedule": "0 0 13 * 5", "after": "2027-01-01T00:00:00Z", "starts_at": "2028-01-01T00:00:00Z"},
		{"schedule": "2020-01-01T00:00:00Z"},
	} {
		if of["count"] == nil {
			of["count"] = 10
		}
		args := []string{"schedule", "next", "-o", "json"}
		for name, value := range of {
			if name != "schedule" {
				text, _ := json.Marshal(value)
				args = append(args, "--"+strings.ReplaceAll(name, "_", "-"), strings.Trim(string(text), `"`))
			}
		}
		var got json.RawMessage
		r := p.ok(append(args, "--", of["schedule"].(string))...)
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.Post(p.server+"/api/v1/schedules/preview", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if d := cmp.Diff(decodeJSON(want), decodeJSON(got)); d != "" || err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: the server answers %s, and the command line differs, error %v:\n%s", body, answer.Status, err, d)
		}
	}
}

func TestScheduleExplainAndCheck(t *testing.T) {
	p := &testCLI{t: t}
	if r := p.ok("schedule", "explain", "0 9 * * MON-FRI"); r.out != "At 09:00, Monday through Friday\n" || r.err != "" {
		t.Errorf("explain printed %+v", r)
	}
	if r := p.ok("schedule", "explain", "@daily", "--timezone", "Europe/Paris"); r.out != "At 00:00 every day in Europe/Paris\n" {
		t.Errorf("explain printed %+v", r)
	}
	if r := p.ok("schedule", "explain", "H 3 * * *"); !strings.HasPrefix(r.out, "At 03:") || !strings.Contains(r.err, "depends on the job") {
		t.Errorf("explain printed %+v", r)
	}
	if r := p.ok("schedule", "explain", "R2/2020-01-01T00:00:00Z/PT1H"); !strings.HasPrefix(r.out, "Every hour, from ") {
		t.Errorf("explain printed %+v of what is over", r)
	}
	if r := p.ok("schedule", "check", "0 9 * * MON-FRI"); r.out != "ok: At 09:00, Monday through Friday\n" || r.err != "" {
		t.Errorf("check printed %+v", r)
	}
	if r := p.ok("schedule", "check", "0 0 13 * 5"); r.out != "ok: At 00:00 on day 13 of the month or on Friday\n" || !strings.Contains(r.err, "are alternatives") {
		t.Errorf("check printed %+v", r)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"a value", "0 9 * * MON-FRY", `belfry: schedule check: column 13: weekday: there is no "FRY"; names have three letters, SUN to SAT
    0 9 * * MON-FRY
                ^
For example: 30 9 * * MON-FRI
`},
		{"a line of several", "DTSTART:20270301T090000\nRRULE:FREQ=DAILY;BYEASTER=1\nEXDATE:20270302T090000", `
    RRULE:FREQ=DAILY;BYEASTER=1
                     ^
`},
		{"a long text", strings.Repeat("1,", 200) + "61" + strings.Repeat(",1", 100) + " * * * *", `
    ...1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,61,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1...
                                                         ^
`},
		{"a character that steers", "0 9 *\x1b[31m * *", `
    0 9 *\x1b[31m * *
         ^
`},
		{"a letter of another script", "0 9 ж * *", `
    0 9 ж * *
        ^
`},
		{"the end", "0 9 * * 1-", `
    0 9 * * 1-
              ^
`},
		{"all of it", "0 0 31 2 *", `belfry: schedule check: the schedule never fires: nothing in the next 45 years fits all of it
For example: 30 9 * * MON-FRI
`},
		{"nothing", "", "belfry: schedule check: the expression is empty\n"},
		{"an instant that is over", "2020-01-01T00:00:00Z", "has passed: it is "},
		{"a rule that is over", "R2/2020-01-01T00:00:00Z/PT1H", "belfry: schedule check: "},
	} {
		r := p.run("schedule", "check", "--", tt.text)
		if r.code != exitRefused || r.out != "" || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: exit code %d, it said\n%s\nwant\n%s", tt.name, r.code, r.err, tt.want)
		}
	}
	for _, args := range [][]string{{"next", "61 * * * *"}, {"explain", "61 * * * *"}, {"check", "@daily", "--timezone", "EST"}, {"check", "H(0-70) * * * *"},
		{"check", "@daily", "--ends-at", "2020-01-01T00:00:00Z"}, {"check", "2499-01-01T00:00:00Z", "--starts-at", "2027-01-01T00:00:00Z"}} {
		if r := p.run(append([]string{"schedule"}, args...)...); r.code != exitRefused || r.out != "" || !strings.HasPrefix(r.err, "belfry: schedule "+args[0]+": ") {
			t.Errorf("%q: got %+v", args, r)
		}
	}
}

func TestScheduleUsageErrors(t *testing.T) {
	p := &testCLI{t: t}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no expression", []string{"next"}, "an expression is required, as in belfry schedule next '0 9 * * MON-FRI'"},
		{"what a shell makes of stars", []string{"next", "0", "9", "go.mod", "go.sum", "main.go"}, "quote the expression, as in belfry schedule next '0 9 * * MON-FRI': there are 5 arguments"},
		{"several to explain", []string{"explain", "0", "9"}, "quote the expression"},
		{"several to check", []string{"check", "0", "9"}, "quote the expression"},
		{"a minus", []string{"next", "-5 * * * *"}, "write -- before an expression that starts with a -"},
		{"an unknown flag", []string{"next", "@daily", "--zone", "UTC"}, "unknown flag: --zone"},
		{"an unknown command", []string{"nxt", "@daily"}, "did you mean next?"},
		{"none", []string{"next", "@daily", "--count", "0"}, "--count: must be from 1 to 1000"},
		{"too many", []string{"next", "@daily", "--count", "1001"}, "--count: must be from 1 to 1000"},
		{"a local time", []string{"next", "@daily", "--after", "2027-03-01T09:00:00"}, "--after: must be an instant with an offset or Z"},
		{"no time", []string{"next", "@daily", "--starts-at", "now"}, "--starts-at"},
		{"a far time", []string{"next", "@daily", "--ends-at", "9999-12-31T23:59:59-01:00"}, "1970 to 2499"},
		{"an end before the start", []string{"next", "@daily", "--starts-at", "2027-03-01T09:00:00Z", "--ends-at", "2027-03-01T09:00:00Z"}, "--ends-at: must be after starts_at"},
		{"another gap", []string{"next", "@daily", "--dst-gap", "both"}, `--dst-gap: must be "run" or "skip"`},
		{"another overlap", []string{"check", "@daily", "--dst-overlap", "last"}, `--dst-overlap: must be "auto", "first" or "both"`},
		{"another format", []string{"next", "@daily", "-o", "xml"}, `--output: "xml" is not one of table, wide, json, yaml`},
		{"an expression and a batch", []string{"next", "@daily", "--batch"}, "use either an expression or --batch"},
		{"a flag and a batch", []string{"next", "--batch", "--timezone", "UTC", "--count", "3"}, "does not work with --batch: each line has its own"},
	} {
		r := p.run(append([]string{"schedule"}, tt.args...)...)
		if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, tt.want) || !strings.Contains(r.err, "See: belfry schedule") {
			t.Errorf("%s: got %+v, want exit code %d and %q", tt.name, r, exitUsage, tt.want)
		}
	}
}

func TestVersionNamesTheZoneData(t *testing.T) {
	p := &testCLI{t: t}
	release := schedule.ZoneVersion()
	if r := p.ok("version"); !strings.Contains(r.out, "zones "+release) || !regexp.MustCompile(`^20[0-9]{2}[a-z]$`).MatchString(release) {
		t.Errorf("the version is %q, the zone database %q", r.out, release)
	}
}
