package schedule

import (
	"fmt"
	"testing"
	"time"
)

// A rule with COUNT must end where the same rule without it is after so many
// steps, however the days and years between were counted.
func TestCountEndsWhereSteppingDoes(t *testing.T) {
	for _, c := range []struct{ zone, rule string }{
		{"UTC", "FREQ=SECONDLY"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=7;BYDAY=MO,TU"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=61;BYSECOND=0,30"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=70;BYHOUR=9,10;BYMONTHDAY=1,2,15"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=90061;BYHOUR=9,10,11,12"},
		{"UTC", "FREQ=MINUTELY;INTERVAL=7;BYHOUR=9,17;BYSECOND=0,1,59"},
		{"UTC", "FREQ=MINUTELY;BYHOUR=9,17;BYSECOND=5,1,59;BYSETPOS=-1,1"},
		{"UTC", "FREQ=HOURLY;INTERVAL=5;BYMINUTE=0,30"},
		{"UTC", "FREQ=HOURLY;INTERVAL=5;BYHOUR=0,1,2,3,4,5,6,7"},
		{"UTC", "FREQ=HOURLY;BYMONTH=3;BYMINUTE=1,2,3;BYSETPOS=2"},
		{"UTC", "FREQ=DAILY"},
		{"UTC", "FREQ=DAILY;BYDAY=MO,TU;BYHOUR=9,11,12"},
		{"UTC", "FREQ=DAILY;INTERVAL=3;BYHOUR=9,11,12"},
		{"UTC", "FREQ=DAILY;BYHOUR=9,11,12;BYSETPOS=1,3"},
		{"UTC", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;BYMINUTE=0,1,2,3"},
		{"UTC", "FREQ=MONTHLY;BYMONTHDAY=31,-1;BYHOUR=1,2,3,4,5,6"},
		{"UTC", "FREQ=YEARLY;INTERVAL=2;BYWEEKNO=1,53;BYHOUR=1,2,3,4,5,6;BYMINUTE=1,2,3"},
		{"America/New_York", "FREQ=SECONDLY;INTERVAL=60"},
		{"America/New_York", "FREQ=MINUTELY;INTERVAL=30"},
		{"America/New_York", "FREQ=HOURLY"},
		{"America/New_York", "FREQ=DAILY"},
		{"America/New_York", "FREQ=DAILY;BYHOUR=0,2,12;INTERVAL=2"},
		{"Australia/Lord_Howe", "FREQ=MINUTELY;INTERVAL=15"},
		{"Australia/Lord_Howe", "FREQ=WEEKLY;BYDAY=MO,TU,SU"},
	} {
		text := fmt.Sprintf("DTSTART;TZID=%s:20260304T093000\n%s", c.zone, c.rule)
		endless, err := Parse(text, Options{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		at := time.Unix(0, 0)
		for n := 1; n <= 3000; n++ {
			at = endless.Next(at)
			if n > 3 && n%499 != 0 && n != 3000 {
				continue
			}
			rule, err := Parse(fmt.Sprintf("%s;COUNT=%d", text, n), Options{})
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if got := rule.Next(at.Add(-1)); !got.Equal(at) {
				t.Errorf("%s;COUNT=%d: before %v comes %v", text, n, at, got)
			}
			if got := rule.Next(at); !got.IsZero() {
				t.Errorf("%s;COUNT=%d: after %v comes %v, want nothing", text, n, at, got)
			}
		}
	}
}
