package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"* * * * *", "30 2 * * *", "0,30 1-3/2 */2 JAN-MAR,12 FRI-MON", "0 0 L-3W,15W,LW * *", "0 0 ? * FRI#2,7L",
		"*/7 */20 22-2 29 2 * 2028/4", "@daily", "@every 5m", "H H(0-7) * * *", "CRON_TZ=Europe/Paris 0 9 * * *",
		"2026-03-08T02:30:00", "2026-03-01T09:00:00.123456+05:45", "R5/2026-03-01T09:00:00Z/PT15M", "FREQ=DAILY", "0 0 31 2 *",
	} {
		f.Add(text, int64(1772_000_000), uint8(0))
		f.Add(text, int64(-1), uint8(29))
	}
	places := []string{
		"", "UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo",
		"Africa/Casablanca", "Africa/Monrovia", "Pacific/Chatham", "Antarctica/Troll", "Asia/Gaza",
	}
	f.Fuzz(func(t *testing.T, text string, after int64, choice uint8) {
		o := Options{Timezone: places[int(choice/6)%len(places)], SkipGap: choice%2 == 1, Overlap: Overlap(choice / 2 % 3)}
		rule, err := Parse(text, o)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Message == "" || e.Column < 0 || e.Column > len(text)+1 || !strings.HasPrefix(err.Error(), e.Field) {
				t.Fatalf("%q: refused with %#v", text, err)
			}
			return
		}
		asked := time.Unix(after, 0)
		for range 100 {
			next := rule.Next(asked)
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
