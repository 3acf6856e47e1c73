package schedule

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParseSharesRules(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text, other string
		o, p        Options
		same        bool
	}{
		{"0 9 * * *", "0 9 * * *", Options{}, Options{}, true},
		{"0 9 * * *", "0 9 * * *", Options{}, Options{Now: start}, true},
		{"0 9 * * *", "0 9 * * *", Options{}, Options{Start: start}, true},
		{"0 9 * * *", "0 9 * * *", Options{}, Options{Timezone: "Europe/Paris"}, false},
		{"0 9 * * *", "0 9 * * *", Options{}, Options{SkipGap: true}, false},
		{"0 9 * * *", "0 9 * * *", Options{}, Options{Overlap: DSTBoth}, false},
		{"0 9 * * *", "0 8 * * *", Options{}, Options{}, false},
		{"@every 5m", "@every 5m", Options{Start: start}, Options{Start: start}, true},
		{"@every 5m", "@every 5m", Options{Start: start}, Options{Start: start.Add(time.Second)}, false},
		{"PT5M", "PT5M", Options{Start: start}, Options{Start: start.Add(time.Microsecond)}, false},
		{"R3/PT5M", "R3/PT5M", Options{Start: start}, Options{Start: start.Add(time.Second)}, false},
		{"R/2026-03-01T09:00:00Z/PT5M", "R/2026-03-01T09:00:00Z/PT5M", Options{}, Options{Start: start}, true},
		{"R/2026-03-01T09:00:00Z/P1D", "R/2026-03-01T09:00:00Z/P1D", Options{}, Options{Start: start}, true},
		{"P1DT1H", "P1DT1H", Options{Start: start}, Options{Start: start, Now: start}, true},
		{"FREQ=DAILY", "FREQ=DAILY", Options{Start: start}, Options{Start: start.Add(time.Second)}, false},
		{"DTSTART:20260301T090000 RRULE:FREQ=DAILY", "DTSTART:20260301T090000 RRULE:FREQ=DAILY", Options{}, Options{Start: start}, true},
		{"2026-03-01T09:00:00Z", "2026-03-01T09:00:00Z", Options{}, Options{Now: start}, true},
	} {
		a, b := mustParse(t, c.text, c.o), mustParse(t, c.other, c.p)
		if same := a == b; same != c.same {
			t.Errorf("%q %+v and %q %+v: the same rule %v, want %v", c.text, c.o, c.other, c.p, same, c.same)
		}
	}
}

func TestParseChecksSharedRule(t *testing.T) {
	rule := mustParse(t, "0 0 0 1 1 * 2026", Options{})
	if _, err := Parse("0 0 0 1 1 * 2026", Options{Now: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a rule that is over was accepted because it is in use")
	}
	epoch := mustParse(t, "PT5M", Options{Start: time.Unix(0, 0)})
	if _, err := Parse("PT5M", Options{}); err == nil {
		t.Error("an interval without a start was accepted because one is in use")
	}
	daily := mustParse(t, "0 9 * * *", Options{})
	for _, text := range []string{"0 9 * * *\n", "0 9 * * *" + strings.Repeat(" ", 2000)} {
		if _, err := Parse(text, Options{}); err == nil {
			t.Errorf("%.20q was accepted because a rule like it is in use", text)
		}
	}
	runtime.KeepAlive(rule)
	runtime.KeepAlive(epoch)
	runtime.KeepAlive(daily)
}

// TestRuleCacheOfAMillionJobs measures what rules take in memory.
func TestRuleCacheOfAMillionJobs(t *testing.T) {
	const jobs, texts = 1_000_000, 1000
	n := jobs
	if raceDetected() {
		n = jobs / 20
	}
	zones := []string{"UTC", "America/New_York", "Europe/Berlin"}
	for _, zone := range zones {
		mustParse(t, "* * * * *", Options{Timezone: zone}) // The zone stays.
	}
	list := make([]string, texts)
	for i := range list {
		list[i] = fmt.Sprintf("%d %d * * %d", i%60, i/60%24, i%7)
	}
	rules := make([]Rule, n)
	before := heapSize()
	for i := range rules {
		rules[i] = mustParse(t, list[i%texts], Options{Timezone: zones[i%texts%len(zones)], Start: time.Unix(int64(i), 0)})
	}
	grown := heapSize() - before
	distinct := map[Rule]bool{}
	for _, r := range rules {
		distinct[r] = true
	}
	t.Logf("%d rules of %d texts are %d in memory and take %d KiB", n, texts, len(distinct), grown/1024)
	if len(distinct) != texts || grown > 2<<20 {
		t.Errorf("%d rules are %d in memory and take %d bytes", n, len(distinct), grown)
	}
	runtime.KeepAlive(rules)
}

func heapSize() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestRuleCacheEvictsUnusedRules(t *testing.T) {
	size := func() int {
		sharedRules.mu.Lock()
		defer sharedRules.mu.Unlock()
		return len(sharedRules.rules)
	}
	for i := range 20_000 {
		mustParse(t, fmt.Sprintf("%d %d %d * *", i%60, i/60%24, 1+i/1440), Options{})
	}
	for range 200 {
		runtime.GC()
		if size() < 2000 {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d rules are still there", size())
}

func TestRuleCacheConcurrency(t *testing.T) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 2000 {
				rule := mustParse(t, fmt.Sprintf("%d * * * *", i%10), Options{})
				if at := rule.Next(time.Unix(0, 0)); at.Minute() != i%10 {
					t.Errorf("minute %d fires at %v", i%10, at)
				}
				if i%500 == 0 {
					runtime.GC()
				}
			}
		})
	}
	group.Wait()
}
