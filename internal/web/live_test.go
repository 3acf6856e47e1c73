package web

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// countingStore counts how often it is asked what happened.
type countingStore struct {
	*sqlite.Store
	asked atomic.Int64
}

func (s *countingStore) Activity(ctx context.Context, namespace string, since time.Time) ([]store.Activity, error) {
	s.asked.Add(1)
	return s.Store.Activity(ctx, namespace, since)
}

func TestManyTabsCostAsMuchAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countingStore{Store: controltest.Open(t)}
		h := newHub(control.New(s, plan.Defaults{}))
		var tabs []chan struct{}
		for range 50 {
			tabs = append(tabs, h.add("default"))
		}
		other := h.add("other")
		woken := func() (n int) {
			synctest.Wait()
			for _, tab := range tabs {
				select {
				case <-tab:
					n++
				default:
				}
			}
			return n
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if n := s.asked.Load(); n < 15 || n > 22 {
			t.Errorf("two namespaces were asked for %d times in 10 s", n)
		}
		if n := woken(); n != 50 {
			t.Errorf("%d of 50 tabs were woken at first", n)
		}
		time.Sleep(10 * time.Second)
		if n := woken(); n > 0 {
			t.Errorf("%d tabs were woken although nothing happened", n)
		}
		if err := s.PutActivity(t.Context(), belfry.NewID(s.Now()), []store.Activity{{Minute: s.Now().Truncate(time.Minute), Namespace: "default", Counts: store.ActivityCounts{1}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		if n := woken(); n != 50 || len(other) > 1 {
			t.Errorf("%d of 50 tabs were woken, and of another namespace %d", n, len(other))
		}
		controltest.Create(t, h.control, controltest.Named("new", "@daily"))
		time.Sleep(1100 * time.Millisecond)
		if n := woken(); n != 50 {
			t.Errorf("%d of 50 tabs were woken by a new job", n)
		}
		for _, tab := range tabs {
			h.remove("default", tab)
		}
		h.remove("other", other)
		synctest.Wait()
		before := s.asked.Load()
		time.Sleep(10 * time.Second)
		if n := s.asked.Load(); n != before {
			t.Errorf("nobody watches, and the database was asked %d times", n-before)
		}
	})
}
