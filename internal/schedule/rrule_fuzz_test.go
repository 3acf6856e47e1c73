package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func FuzzCalendar(f *testing.F) {
	for _, c := range rfcExamples {
		f.Add("DTSTART;TZID=America/New_York:"+c.start+"T090000\nRRULE:"+c.rule, int64(873_000_000), uint8(0))
	}
	for _, text := range []string{
		"FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9", "FREQ=SECONDLY;INTERVAL=86399;BYHOUR=9;BYMINUTE=0;BYSECOND=0,59",
		"FREQ=MINUTELY;INTERVAL=420;BYHOUR=0,7;BYDAY=SU;WKST=SA;COUNT=100000", "FREQ=YEARLY;BYWEEKNO=-1,53;BYSETPOS=-1,7",
		"FREQ=HOURLY;INTERVAL=25;BYYEARDAY=-1,366;BYMINUTE=0,30;BYSECOND=1;BYSETPOS=2", "FREQ=DAILY;UNTIL=20261101T013000",
		"RRULE:FREQ=DAILY;COUNT=3\r\nRRULE:FREQ=MONTHLY;BYDAY=2TU\nEXDATE;VALUE=DATE:20260301,20260302\nRDATE;TZID=Asia/Tokyo:20260309T170000 EXDATE:20260308T070000Z",
		"DTSTART;VALUE=DATE:20260308\n RRULE: FREQ=SECONDLY; INTERVAL=1000000000", "dtstart:99991231t235959z freq=yearly", "EXRULE:FREQ=DAILY",
	} {
		f.Add(text, int64(1_772_000_000), uint8(0))
		f.Add(text, int64(-1<<40), uint8(29))
	}
	places := []string{
		"", "UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo",
		"Africa/Casablanca", "Africa/Monrovia", "Pacific/Chatham", "Antarctica/Troll", "Asia/Gaza",
	}
	f.Fuzz(func(t *testing.T, text string, after int64, choice uint8) {
		o := Options{
			Timezone: places[int(choice/6)%len(places)], SkipGap: choice%2 == 1, Overlap: DSTOverlap(choice / 2 % 3),
			Start: time.Date(2026, 3, 8, 9, 0, 0, 0, time.UTC),
		}
		begin := time.Now()
		rule, err := parseOnlyRRule(text, o)
		if took := time.Since(begin); took > 2*time.Second {
			t.Fatalf("%q: it took %v to read", text, took)
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Message == "" || e.Column < 0 || e.Column > len(text)+1 || !strings.HasPrefix(err.Error(), e.Field) {
				t.Fatalf("%q: refused with %#v", text, err)
			}
			return
		}
		asked := time.Unix(after, 0)
		for range 100 {
			begin := time.Now()
			next := rule.Next(asked)
			if took := time.Since(begin); took > time.Second {
				t.Fatalf("%q: it took %v to find what is after %v", text, took, asked)
			}
			if next.IsZero() {
				return
			}
			if !next.After(asked) || !rule.Next(next.Add(-1)).Equal(next) {
				t.Fatalf("%q %+v: after %v comes %v", text, o, asked, next)
			}
			asked = next
		}
	})
}
