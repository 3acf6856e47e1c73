package notify_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
)

var rewrite = flag.Bool("rewrite", false, "write the messages into testdata/messages.txt")

var kinds = []belfry.AlertKind{
	belfry.AlertDead, belfry.AlertFailing, belfry.AlertRecovered, belfry.AlertNotStarted, belfry.AlertNotFinished, belfry.AlertSlow,
	belfry.AlertSkipped, belfry.AlertLag, belfry.AlertCatchUp, belfry.AlertMonitor, belfry.AlertTest,
}

// newAlert is an alert about one job.
func newAlert(kind belfry.AlertKind, status belfry.AlertStatus) belfry.Alert {
	start := time.Date(2026, 12, 1, 1, 30, 5, 0, time.UTC)
	id, _ := belfry.ParseID("01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08")
	run, _ := belfry.ParseID("01a22f39-2d30-8f6e-b1d2-6a90c3e7f5b8")
	a := belfry.Alert{
		ID: id, Namespace: "default", Channel: "oncall", Subscription: belfry.Subscription{On: kind}, Status: status,
		StartedAt: start, LatestAt: start.Add(time.Minute), Count: 1, Message: "One run died: the target answered 503.", URL: "https://belfry.example.com/alerts/1",
		Items: []belfry.AlertItem{{Name: "nightly-report", RunID: run, ScheduledAt: start.Add(-5 * time.Second), Error: "the target answered 503"}},
	}
	if kind == belfry.AlertMonitor {
		a.Message, a.Items = "No ping came in time.", []belfry.AlertItem{{Name: "backup", ScheduledAt: start, Error: "no ping since 2026-11-30 01:30:05 UTC"}}
	}
	if kind == belfry.AlertTest {
		a.Message, a.Items, a.Count = "If you read this, the channel works.", nil, 0
	}
	if acknowledged := start.Add(2 * time.Minute); status != belfry.AlertFiring && kind != belfry.AlertTest {
		a.AcknowledgedAt, a.AcknowledgedBy = &acknowledged, "ada"
	}
	if resolved := start.Add(time.Hour); status == belfry.AlertResolved {
		a.ResolvedAt = &resolved
	}
	return a
}

// largeAlert is an alert about many jobs.
func largeAlert(kind belfry.AlertKind, status belfry.AlertStatus) belfry.Alert {
	a := newAlert(kind, status)
	a.Count = 1234567
	for i := range 4 {
		item := a.Items[0]
		item.Name = fmt.Sprintf("job-%d", i)
		a.Items = append(a.Items, item)
	}
	return a
}

func allAlerts() (list []belfry.Alert) {
	for _, kind := range kinds {
		for _, status := range []belfry.AlertStatus{belfry.AlertFiring, belfry.AlertAcknowledged, belfry.AlertResolved} {
			list = append(list, newAlert(kind, status))
			if kind != belfry.AlertTest {
				list = append(list, largeAlert(kind, status))
			}
		}
	}
	return list
}

func TestMessagesReadAsRecorded(t *testing.T) {
	var text strings.Builder
	for _, a := range allAlerts() {
		m := notify.Describe(a)
		fmt.Fprintf(&text, "=== %s, %s, %d\n%s\n\n%s\n", a.Subscription.On, a.Status, a.Count, m.Title, m)
	}
	const path = "testdata/messages.txt"
	if *rewrite {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("the messages changed; read the difference, and run the test with -rewrite if it is better:\n%s", diff)
	}
}

func TestEveryKindHasATitle(t *testing.T) {
	for _, known := range belfry.AlertKind("").EnumValues() {
		m := notify.Describe(newAlert(belfry.AlertKind(known.Value), belfry.AlertFiring))
		if strings.HasPrefix(m.Title, "Alert about") {
			t.Errorf("%s has no title of its own: %s", known.Value, m.Title)
		}
	}
}

func TestTitlesNameWhatTheyAreAbout(t *testing.T) {
	item := func(name string) belfry.AlertItem { return belfry.AlertItem{Name: name} }
	id := newAlert(belfry.AlertDead, belfry.AlertFiring).ID
	for _, tt := range []struct {
		count int64
		job   string
		items []belfry.AlertItem
		want  string
	}{
		{1, "", []belfry.AlertItem{item("payroll")}, "Dead letter of job payroll"},
		{1, "", []belfry.AlertItem{{JobID: id}}, "Dead letter of job " + id.String()},
		{1, "", nil, "Dead letter of job without a name"},
		{1000, "payroll", nil, "1,000 dead letters: payroll"},
		{2, "", []belfry.AlertItem{item("payroll"), item("payroll")}, "2 dead letters: payroll"},
		{3, "", []belfry.AlertItem{item("payroll"), item("payroll")}, "3 dead letters: payroll"},
		{2, "", []belfry.AlertItem{item("leaky")}, "2 dead letters: leaky"},
		{4, "", []belfry.AlertItem{item("a"), item("b"), item("c"), item("d")}, "4 dead letters: a, b, c, …"},
		{1, "", []belfry.AlertItem{item(" a\r\nb\u202e ")}, "Dead letter of job a b"},
	} {
		a := newAlert(belfry.AlertDead, belfry.AlertFiring)
		a.Count, a.Items, a.Subscription.Job = tt.count, tt.items, tt.job
		if got := notify.Describe(a).Title; got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	for kind, want := range map[belfry.AlertKind]string{ // each item is one of them
		belfry.AlertFailing: "2 jobs are failing: a, …", belfry.AlertCatchUp: "2 large catch-ups: a, …", belfry.AlertMonitor: "2 monitors are down: a, …",
	} {
		a := newAlert(kind, belfry.AlertFiring)
		a.Count, a.Items = 2, []belfry.AlertItem{item("a")}
		if got := notify.Describe(a).Title; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
