//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// onEither runs a test on both databases, one after the other.
func onEither(t *testing.T, test func(t *testing.T, open func(args ...string) *process)) {
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		test(t, func(args ...string) *process { return onSQLite(t, dir, args...) })
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.Database(t, nil)
		test(t, func(args ...string) *process { return onPostgres(t, url, args...) })
	})
}

func TestHangingCallbackDelaysNoOther(t *testing.T) {
	onEither(t, func(t *testing.T, open func(args ...string) *process) {
		const timeout = 8 * time.Second
		d := newDriver(t, open("--concurrency", "200").address)
		var hanging []requestedJob
		for range 100 {
			hanging = append(hanging, d.onceIn(200*time.Millisecond, "/hang/1", quick(spec{"timeout_seconds": int(timeout.Seconds()), "max_retries": 0})))
		}
		d.receiver.awaitDelivery(t, time.Minute, hanging...)
		lag := d.wantOnTime(func(int) requestedJob { return d.onceIn(200*time.Millisecond, "/ok", quick(nil)) })
		if still := d.receiver.waiting(hanging); still < len(hanging) {
			t.Logf("the machine was busy: only %d callbacks hung to the end of the round", still)
		}
		h := d.awaitClean(time.Minute, false)
		longest := time.Duration(0)
		for _, r := range h.runsOf(hanging) {
			if r.Status != "dead" || len(r.Attempts) != 1 || r.Attempts[0].Outcome != "timed_out" {
				t.Fatalf("a run whose target hangs is %+v", r)
			}
			took := r.Attempts[0].FinishedAt.Sub(r.Attempts[0].StartedAt)
			if took < timeout || took > 2*timeout {
				t.Errorf("an attempt with a timeout of %v took %v", timeout, took)
			}
			longest = max(longest, took)
		}
		t.Logf("with 100 hanging callbacks the latest of the best round of quick ones was %v late; those with a timeout of %v ended within %v", lag, timeout, longest)
	})
}
