package schedule

import (
	"fmt"
	"testing"
	"time"
)

func TestWeeksAtTheEndsOfYears(t *testing.T) {
	for wkst := range 7 {
		for _, week := range []int{1, 2, 51, 52, 53, -1, -2, -51, -52, -53} {
			plain := &plainRule{
				freq: "YEARLY", interval: 1, wkst: time.Weekday(wkst), by: map[string][]int{"BYWEEKNO": {week}},
				start: time.Date(1880, 1, 1, 0, 0, 0, 0, time.UTC),
			}
			text := fmt.Sprintf("DTSTART:18800101T000000 %s", plain)
			rule, err := Parse(text, Options{})
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			for year := 1890; year < 2110; year++ {
				for _, day := range []int{1, 2, 3, 4, 5, 8, 20, 340, 355, 358, 359, 360, 361, 362, 363, 364, 365, 366} {
					at := time.Date(year, 1, day, 0, 0, 0, 0, time.UTC)
					if got, want := firesAt(rule, at.Unix()), plain.dayFits(at); got != want {
						t.Fatalf("%s: it fires on %s: %v, want %v", text, at.Format(time.DateOnly), got, want)
					}
				}
			}
		}
	}
}

func TestWeeksAreThoseOfISO8601(t *testing.T) {
	rule := &rrule{freq: yearly, wkst: 1}
	for year := 1970; year <= lastYear; year++ {
		first := dayNumber(year, 1, 1)
		kind := yearKind{weekdayOf(first), isLeap(year), isLeap(year - 1), isLeap(year + 1)}
		for _, day := range []int{0, 1, 2, 3, 200, 360, 361, 362, 363, 364} {
			_, week := time.Unix((first+int64(day))*secondsPerDay, 0).UTC().ISOWeek()
			rule.weeks = []int{week}
			if set := rule.byWeek(kind); !set.has(day) {
				t.Fatalf("day %d of %d is not in week %d", day+1, year, week)
			}
		}
	}
}
