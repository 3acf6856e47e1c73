package schedule

import (
	"testing"
	"time"
)

func TestCloseTimes(t *testing.T) {
	now := utc(t, "2026-03-02 12:30")
	for _, tt := range []struct {
		text  string
		least time.Duration
		want  time.Duration // between the two; 0: none are so close
	}{
		{"* * * * *", time.Minute, 0},
		{"* * * * *", time.Minute + 1, time.Minute},
		{"@every 90s", 90 * time.Second, 0},
		{"@every 90s", 2 * time.Minute, 90 * time.Second},
		{"*/7 * * * *", 7 * time.Minute, 4 * time.Minute}, // from :56 to :00
		{"0 0,7,14,21 * * *", 7 * time.Hour, 3 * time.Hour},
		{"0,1 4 1 1 *", time.Hour, time.Minute}, // once a year
		{"0 0 1,31 * *", 2 * 24 * time.Hour, 24 * time.Hour},
		{"0 0 * * MON-FRI", 24 * time.Hour, 0},
		{"RRULE:FREQ=DAILY;BYHOUR=3;BYMINUTE=0,5", time.Hour, 5 * time.Minute},
		{"RRULE:FREQ=DAILY;COUNT=2", 24 * time.Hour, 0},
		{"2030-03-01T09:00:00Z", 24 * time.Hour, 0},
	} {
		first, second := CloseTimes(mustParse(t, tt.text, Options{Start: now, Now: now}), now, time.Time{}, time.Time{}, tt.least)
		if got := second.Sub(first); got != tt.want {
			t.Errorf("%s: %v after %v is %v, want %v", tt.text, second, first, got, tt.want)
		}
	}
	rule := mustParse(t, "0,1 * * * *", Options{})
	if first, _ := CloseTimes(rule, now, time.Time{}, now.Add(30*time.Minute), time.Hour); !first.IsZero() {
		t.Errorf("%v is before the end, and the other is not", first)
	}
	later := now.Add(24 * time.Hour)
	if first, _ := CloseTimes(rule, now, later, time.Time{}, time.Hour); first.Before(later) {
		t.Errorf("%v is before the start", first)
	}
}
