package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestTimeFormat(t *testing.T) {
	london, err := time.LoadLocation("Europe/London")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC) // 01:30 in summer time, half an hour before it ends
	for _, tt := range []struct {
		zone *time.Location
		of   time.Time
		want string
	}{
		{time.UTC, at, "2026-10-25 00:30 UTC / 00:30 / 00:30"},
		{time.UTC, at.Add(time.Second), "2026-10-25 00:30:01 UTC / 00:30:01 / 00:30:01"},
		{time.UTC, at.Add(1500 * time.Millisecond), "2026-10-25 00:30:01.5 UTC / 00:30:01.5 / 00:30:01"},
		{time.UTC, at.Add(-time.Hour), "2026-10-24 23:30 UTC / 2026-10-24 23:30 UTC / 2026-10-24 23:30 UTC"},
		{london, at, "2026-10-25 01:30 +01:00 / 01:30 / 01:30"},
		{london, at.Add(time.Hour), "2026-10-25 01:30 +00:00 / 2026-10-25 01:30 +00:00 / 2026-10-25 01:30 +00:00"},
	} {
		f := timeFormat{tt.zone, at}
		if got := strings.Join([]string{f.full(tt.of), f.short(tt.of), f.seconds(tt.of)}, " / "); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestDurationFormat(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                              "less than a second",
		999 * time.Millisecond:         "less than a second",
		time.Second:                    "1 second",
		61 * time.Second:               "1 minute 1 second",
		2 * time.Minute:                "2 minutes",
		time.Hour + 59*time.Second:     "1 hour",
		25*time.Hour + 2*time.Minute:   "1 day 1 hour",
		40*24*time.Hour + 30*time.Hour: "41 days 6 hours",
	} {
		if got := duration(d); got != want {
			t.Errorf("%s is written %q, want %q", d, got, want)
		}
	}
}

func TestQuoteIsOneShortLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"it\n\tis  so ":           "it is so",
		strings.Repeat("x", 200):  strings.Repeat("x", 200),
		strings.Repeat("é", 1000): strings.Repeat("é", 100) + "…",
	} {
		if got := quote(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestSlotsSentence(t *testing.T) {
	for _, tt := range []struct {
		waits     belfry.Wait
		elsewhere bool
		want      string
	}{
		{belfry.Wait{Queue: "default", Handler: "http", Workers: 2, Slots: 100, Running: 100, Ahead: 17}, true,
			"all 100 slots of 2 workers that serve default/http are busy; 17 runs are ahead of it."},
		{belfry.Wait{Queue: "default", Handler: "http", Workers: 1, Slots: 1, Running: 1}, false,
			"the only slot of the worker that serves default/http is busy; no run is ahead of it."},
		{belfry.Wait{Queue: "default", Handler: "http", Workers: 1, Slots: 2, Running: 1, Ahead: 1}, true,
			"1 of 2 slots of the worker that serves default/http are busy with this handler, and others may be busy with other queues and handlers; 1 run is ahead of it."},
		{belfry.Wait{Queue: "default", Handler: "http", Workers: 1, Slots: 2, Running: 1, Ahead: 1}, false,
			"1 run is ahead of it, and 1 of 2 slots of the worker that serves default/http are busy; it starts as soon as one of them claims it."},
		{belfry.Wait{Queue: "default", Handler: "http", Workers: 1, Slots: 0}, false,
			"the worker that serves default/http has no slots; no run is ahead of it."},
	} {
		if got := slots(&tt.waits, tt.elsewhere); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestQueueAndHandlerOfALane(t *testing.T) {
	for lane, want := range map[string][2]string{
		"default/http":            {"default", "http"},
		"team-7:default/send":     {"default", "send"},
		"team-7:slow/send:it now": {"slow", "send:it now"},
	} {
		if queue, handler := belfry.SplitLane(lane); queue != want[0] || handler != want[1] {
			t.Errorf("%s is %q and %q", lane, queue, handler)
		}
	}
}
