package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// eventful are zones that did unusual things with their clocks.
var eventful = []string{
	"UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo",
	"Africa/Casablanca", "Pacific/Chatham", "Antarctica/Troll", "Asia/Gaza", "America/St_Johns", "Africa/Cairo",
}

// randomField writes a field of an expression between low and high.
func randomField(r *rand.Rand, low, high int) string {
	value := func() int { return low + r.IntN(high-low+1) }
	var items []string
	for range 1 + r.IntN(3)*r.IntN(2) {
		switch r.IntN(7) {
		case 0:
			items = append(items, fmt.Sprintf("*/%d", 1+r.IntN(high-low+3)))
		case 1:
			items = append(items, fmt.Sprintf("%d-%d", value(), value()))
		case 2:
			items = append(items, fmt.Sprintf("%d-%d/%d", value(), value(), 1+r.IntN(9)))
		case 3:
			items = append(items, fmt.Sprintf("%d/%d", value(), 1+r.IntN(high-low+1)))
		default:
			items = append(items, fmt.Sprint(value()))
		}
	}
	return strings.Join(items, ",")
}

// randomCron writes an expression, one in a few with seconds. It may be one that
// never fires.
func randomCron(r *rand.Rand) string {
	field := func(wild, low, high int) string {
		if r.IntN(10) < wild {
			return "*"
		}
		return randomField(r, low, high)
	}
	day, weekday := field(6, 1, 31), field(6, 0, 6)
	if r.IntN(6) == 0 {
		day = []string{"L", "L-3", "LW", "15W", "1W,L", "L-2W"}[r.IntN(6)]
	}
	if r.IntN(6) == 0 {
		weekday = []string{"5L", "MON#1", "1#1,FRI#3", "SUN,2L", "FRI-MON", "7"}[r.IntN(6)]
	}
	fields := []string{field(2, 0, 59), field(4, 0, 23), day, field(7, 1, 12), weekday}
	if r.IntN(4) == 0 {
		fields = append([]string{field(2, 0, 59)}, fields...)
		if r.IntN(5) == 0 {
			fields = append(fields, fmt.Sprintf("%d-%d/%d", 2000+r.IntN(20), 2026+r.IntN(40), 1+r.IntN(4)))
		}
	}
	return strings.Join(fields, " ")
}

var randomCalendar = []string{
	"FREQ=DAILY;BYHOUR=1,2,3;BYMINUTE=0,30;BYSECOND=0", "FREQ=HOURLY", "FREQ=MINUTELY;INTERVAL=7", "FREQ=MINUTELY;INTERVAL=10;COUNT=5000",
	"FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,SU;BYHOUR=2", "FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2;BYMINUTE=30", "FREQ=SECONDLY;INTERVAL=90;BYHOUR=1,2",
	"FREQ=DAILY;BYHOUR=1,2;BYSETPOS=-1", "FREQ=HOURLY;INTERVAL=3;UNTIL=20300101T000000Z", "FREQ=SECONDLY;INTERVAL=700;BYMONTHDAY=1,15,-1",
	"FREQ=HOURLY;INTERVAL=5;BYMINUTE=0,20,40;BYSECOND=0,30", "FREQ=MINUTELY;INTERVAL=11;BYSECOND=5,50;BYDAY=MO,FR", "FREQ=SECONDLY;BYMINUTE=7",
	"FREQ=YEARLY;BYWEEKNO=13,44;BYDAY=SU;BYHOUR=0,1,2;BYMINUTE=15", "FREQ=DAILY\nEXDATE:20260308T023000,20050403T013000",
}

// randomRule parses a random text of any form in a random zone.
func randomRule(t *testing.T, r *rand.Rand) (Rule, string, Options) {
	t.Helper()
	o := Options{
		Timezone: eventful[r.IntN(len(eventful))],
		SkipGap:  r.IntN(3) == 0,
		Overlap:  DSTOverlap(r.IntN(3)),
		Start:    time.Unix(946_684_800+r.Int64N(1_200_000_000), 0),
	}
	for {
		text := randomCron(r)
		switch r.IntN(8) {
		case 0:
			text = fmt.Sprintf("PT%dS", 1+r.IntN(100_000))
		case 1:
			text = fmt.Sprintf("R%d/P%dM%dD", 1+r.IntN(5000), r.IntN(3), 1+r.IntN(9))
		case 2:
			text = fmt.Sprintf("P%dDT%dS", 1+r.IntN(3), 1+r.IntN(100_000))
		case 3:
			text = randomCalendar[r.IntN(len(randomCalendar))]
		}
		if rule, err := Parse(text, o); err == nil {
			return rule, text, o
		}
	}
}
