package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// known is a line of the cases that other projects' tests are made of.
type known struct {
	Expr     string      `json:"expr"`
	TZ       string      `json:"tz"`
	After    string      `json:"after"`
	DTStart  string      `json:"dtstart,omitempty"`
	Policy   string      `json:"policy,omitempty"`
	Next     []time.Time `json:"next"`
	Complete bool        `json:"complete"`
	Tags     []string    `json:"tags"`
}

// question is the line of a batch that asks for a case.
func (k known) question() string {
	gap := "run"
	if k.Policy == "SKIP" {
		gap = "skip"
	}
	count := len(k.Next)
	if k.Complete {
		count += 3 // There are no more.
	}
	raw, _ := json.Marshal(map[string]any{"expr": k.Expr, "tz": k.TZ, "after": k.After, "dtstart": k.DTStart, "dst_gap": gap, "count": max(count, 1)})
	return string(raw) + "\n"
}

func knownCases(t testing.TB) []known {
	t.Helper()
	var list []known
	for _, name := range []string{"cron", "dst", "rrule"} {
		file, err := os.Open("../../internal/schedule/testdata/known_" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var k known
			if err := json.Unmarshal(lines.Bytes(), &k); err != nil {
				t.Fatal(err)
			}
			list = append(list, k)
		}
	}
	return list
}

// answered runs a batch and gives its answers.
func answered(t testing.TB, questions io.Reader) []string {
	t.Helper()
	var out, failed bytes.Buffer
	if code := execute(t.Context(), []string{"schedule", "next", "--batch"}, questions, &out, &failed); code != exitOK || failed.Len() > 0 {
		t.Fatalf("exit code %d, it said %s", code, failed.String())
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestScheduleBatchOfKnownCases(t *testing.T) {
	cases := knownCases(t)
	var questions strings.Builder
	for _, k := range cases {
		questions.WriteString(k.question())
	}
	answers := answered(t, strings.NewReader(questions.String()))
	if len(answers) != len(cases) || len(cases) != 1339 {
		t.Fatalf("%d answers to %d questions, of which there should be 1339", len(answers), len(cases))
	}
	right, refused := 0, 0
	for i, k := range cases {
		var got struct {
			Next  []time.Time
			Error string
		}
		if err := json.Unmarshal([]byte(answers[i]), &got); err != nil {
			t.Fatalf("%s: %v", answers[i], err)
		}
		switch {
		case got.Error != "" && slices.Contains(k.Tags, "rfc-invalid"):
			refused++
		case got.Error != "" || !slices.EqualFunc(got.Next, k.Next, time.Time.Equal):
			t.Errorf("%+v is answered by %s", k, answers[i])
		default:
			right++
		}
	}
	t.Logf("%d right, %d refused as RFC 5545 demands", right, refused)
	if refused > 46 {
		t.Errorf("%d are refused, want at most 46", refused)
	}
}

func TestScheduleBatchOfTenThousandLines(t *testing.T) {
	cases := knownCases(t)
	var questions strings.Builder
	const count = 10_000
	for i := range count {
		questions.WriteString(cases[i%len(cases)].question())
	}
	began := time.Now()
	answers := answered(t, strings.NewReader(questions.String()))
	took := time.Since(began)
	t.Logf("%d lines in %v", count, took.Round(time.Millisecond))
	if len(answers) != count {
		t.Errorf("%d answers", len(answers))
	}
	if took > 20*time.Second { // A busy machine may be slow, but not that slow.
		t.Errorf("%d lines took %v", count, took)
	}
	for i := len(cases); i < count; i++ {
		if answers[i] != answers[i%len(cases)] {
			t.Fatalf("line %d is answered by %s, and before it was by %s", i+1, answers[i], answers[i%len(cases)])
		}
	}
}

func TestScheduleBatchAnswersEveryLine(t *testing.T) {
	long := `{"expr":"@daily","after":"2027-01-01T00:00:00Z","x":"`
	longest := long + strings.Repeat("x", maxLine-len(long)-2) + `"}`
	for _, tt := range []struct{ name, line, want string }{
		{"a good one", `{"expr":"@daily","after":"2027-01-01T00:00:00Z"}`, `{"next":["2027-01-02T00:00:00Z"]}`},
		{"with an offset", `{"expr":"@daily","after":"2027-01-01T00:00:00+02:00"}`, `{"next":["2027-01-01T00:00:00Z"]}`},
		{"several", `{"expr":"@daily","after":"2027-01-01T00:00:00Z","count":2}`, `{"next":["2027-01-02T00:00:00Z","2027-01-03T00:00:00Z"]}`},
		{"an end of a line of another system", `{"expr":"@daily","after":"2027-01-01T00:00:00Z"}` + "\r", `{"next":["2027-01-02T00:00:00Z"]}`},
		{"fewer than asked for", `{"expr":"R2/2027-01-01T09:00:00Z/PT1H","after":"2026-01-01T00:00:00Z","count":9}`, `{"next":["2027-01-01T09:00:00Z","2027-01-01T10:00:00Z"]}`},
		{"none any more", `{"expr":"2020-01-01T00:00:00Z","after":"2027-01-01T00:00:00Z"}`, `{"next":[]}`},
		{"a year that is over", `{"expr":"0 0 0 1 1 ? 2020","after":"2027-01-01T00:00:00Z"}`, `{"next":[]}`},
		{"a fraction of a second", `{"expr":"2027-01-01T09:00:00.25Z","after":"2026-01-01T00:00:00Z"}`, `{"next":["2027-01-01T09:00:00.25Z"]}`},
		{"an interval from a local time", `{"expr":"P1D","tz":"Europe/Paris","dtstart":"2027-03-27T09:00:00","after":"2027-03-27T12:00:00Z","count":2}`, `{"next":["2027-03-28T07:00:00Z","2027-03-29T07:00:00Z"]}`},
		{"an interval from after", `{"expr":"PT1H","after":"2027-01-01T00:00:00Z"}`, `{"next":["2027-01-01T01:00:00Z"]}`},
		{"a rule from the form of its own standard", `{"expr":"FREQ=DAILY;COUNT=1","tz":"Europe/Paris","dtstart":"20270301T090000","after":"2027-01-01T00:00:00Z"}`, `{"next":["2027-03-01T08:00:00Z"]}`},
		{"a rule from UTC", `{"expr":"FREQ=DAILY;COUNT=1","tz":"Europe/Paris","dtstart":"20270301T090000Z","after":"2027-01-01T00:00:00Z"}`, `{"next":["2027-03-01T09:00:00Z"]}`},
		{"a rule from a date", `{"expr":"FREQ=DAILY;COUNT=1","dtstart":"2027-03-01","after":"2027-01-01T00:00:00Z"}`, `{"next":["2027-03-01T00:00:00Z"]}`},
		{"a rule from a time that is skipped", `{"expr":"FREQ=DAILY","tz":"America/New_York","dtstart":"2026-03-08T02:30:00","after":"2026-03-01T00:00:00Z","count":2}`, `{"next":["2026-03-08T07:00:00Z","2026-03-09T06:30:00Z"]}`},
		{"a rule that says it itself", `{"expr":"DTSTART:20270101T090000 RRULE:FREQ=DAILY","dtstart":"2027-06-01T10:00:00","after":"2027-01-01T00:00:00Z"}`, `{"next":["2027-01-01T09:00:00Z"]}`},
		{"a gap", `{"expr":"30 2 * * *","tz":"America/New_York","after":"2026-03-07T12:00:00Z","dst_gap":"skip"}`, `{"next":["2026-03-09T06:30:00Z"]}`},
		{"an overlap", `{"expr":"30 1 * * *","tz":"America/New_York","after":"2026-11-01T05:30:00Z","dst_overlap":"both"}`, `{"next":["2026-11-01T06:30:00Z"]}`},
		{"an H", `{"expr":"H(5-5) * * * *","after":"2027-01-01T00:00:00Z"}`, `{"next":["2027-01-01T00:05:00Z"]}`},
		{"the longest line", longest, `{"next":["2027-01-02T00:00:00Z"]}`},
		{"a longer one", longest + " ", `{"error":"the line has more than 1048576 bytes"}`},
		{"a much longer one", strings.Repeat("x", 3*maxLine), `{"error":"the line has more than 1048576 bytes"}`},
		{"nothing", ``, `{"error":"the line is empty;`},
		{"blanks", "\t ", `{"error":"the line is empty;`},
		{"no JSON", `@daily`, `{"error":"the line is not valid JSON: line 1, column 1: `},
		{"half of it", `{"expr":"@daily"`, `{"error":"the line is not valid JSON: line 1, column 17: `},
		{"two in one", `{"expr":"@daily"}{}`, `{"error":"the line is not valid JSON: line 1, column 18: `},
		{"a list", `["@daily"]`, `{"error":"the line is not a JSON object such as {\"expr\": \"0 9 * * *\"}"}`},
		{"null", `null`, `{"error":"the line is not a JSON object`},
		{"not a text", `{"expr":5}`, `{"error":"expr: must be a string"}`},
		{"no expression", `{}`, `{"error":"schedule: the text is empty`},
		{"a bad one", `{"expr":"61 * * * *"}`, `{"error":"schedule, column 1: minute 61 is out of range, it goes from 0 to 59; for example \"*/15 * * * *\""}`},
		{"one that never fires", `{"expr":"0 0 31 2 *"}`, `{"error":"schedule: the schedule never fires`},
		{"a bad H", `{"expr":"H(0-70) * * * *"}`, `{"error":"schedule, column 5`},
		{"a bad zone", `{"expr":"@daily","tz":"EST"}`, `{"error":"timezone: \"EST\" is an abbreviation`},
		{"a bad instant", `{"expr":"@daily","after":"2027-01-01T00:00:00"}`, `{"error":"after: must be an instant with an offset or Z`},
		{"an empty instant", `{"expr":"@daily","after":""}`, `{"error":"after: `},
		{"a bad count", `{"expr":"@daily","count":1001}`, `{"error":"count: must be from 1 to 1000"}`},
		{"a count of none", `{"expr":"@daily","count":0}`, `{"error":"count: must be from 1 to 1000"}`},
		{"half a count", `{"expr":"@daily","count":1.5}`, `{"error":"count: must be a whole number"}`},
		{"a bad start", `{"expr":"PT1H","dtstart":"noon"}`, `{"error":"dtstart: `},
		{"a bad gap", `{"expr":"@daily","dst_gap":"x"}`, `{"error":"dst_gap: must be \"run\" or \"skip\""}`},
		{"a bad overlap", `{"expr":"@daily","dst_overlap":"x"}`, `{"error":"dst_overlap: must be \"auto\", \"first\" or \"both\""}`},
		{"an escape sequence", `{"expr":"PT1H","dtstart":"\u009b31m"}`, `{"error":"dtstart: `},
	} {
		answers := answered(t, strings.NewReader(tt.line+"\n"+`{"expr":"@yearly","after":"2027-01-01T00:00:00Z"}`))
		if len(answers) != 2 || !strings.HasPrefix(answers[0], tt.want) || answers[1] != `{"next":["2028-01-01T00:00:00Z"]}` || !json.Valid([]byte(answers[0])) {
			t.Errorf("%s: got %q, want %q", tt.name, answers, tt.want)
		}
	}
	if answers := answered(t, strings.NewReader("")); len(answers) != 1 || answers[0] != "" {
		t.Errorf("nothing is answered by %q", answers)
	}
}

func TestScheduleBatchAnswersBeforeTheNextQuery(t *testing.T) {
	in, ask := io.Pipe()
	answer, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- answerQueries(t.Context(), in, out, time.Now()) }()
	lines := bufio.NewScanner(answer)
	for i := range 3 {
		fmt.Fprintf(ask, "{\"expr\":\"@daily\",\"after\":\"2027-01-0%dT00:00:00Z\"}\n", i+1)
		if want := fmt.Sprintf(`{"next":["2027-01-0%dT00:00:00Z"]}`, i+2); !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
	ask.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestScheduleBatchEndsOnErrors(t *testing.T) {
	question := strings.NewReader(`{"expr":"@daily"}` + "\n")
	_, out := io.Pipe()
	gone := errors.New("gone")
	out.CloseWithError(gone)
	if err := answerQueries(t.Context(), question, out, time.Now()); err == nil {
		t.Error("it did not notice that nobody listens")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := answerQueries(ctx, question, io.Discard, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted, it ended with %v", err)
	}
	in, ask := io.Pipe()
	ask.CloseWithError(gone)
	if err := answerQueries(t.Context(), in, io.Discard, time.Now()); !errors.Is(err, gone) {
		t.Errorf("it ended with %v, want that its input is gone", err)
	}
}
