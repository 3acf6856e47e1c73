package scheduler

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// littered is a store in which so many one-offs are over and still there.
type littered struct {
	store.Store
	mu    sync.Mutex
	left  int
	looks []time.Time
}

func (l *littered) Retire(_ context.Context, _ []int, _ belfry.ID, limit int) (int, belfry.ID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks = append(l.looks, time.Now())
	n := min(limit, l.left)
	if l.left -= n; l.left > 0 {
		return n, belfry.NewID(time.Now()), nil
	}
	return n, belfry.ID{}, nil
}

func (l *littered) state() (left int, looks []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left, slices.Clone(l.looks)
}

// A process that died may have left many behind, and the next one may not live
// longer: it begins soon, and goes on while there are more.
func TestOneOffsThatWereLeftBehindAreSoonPutAway(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := &littered{Store: b.store, left: 5*archiveLimit + 1}
		b.start(l)
		b.sleep(30 * time.Second)
		if left, _ := l.state(); left > 0 {
			t.Errorf("after half a minute %d are left", left)
		}
		_, before := l.state()
		b.sleep(10 * time.Minute)
		_, looks := l.state()
		if n := len(looks) - len(before); n < 9 || n > 11 {
			t.Errorf("with nothing left it was looked for them %d times in ten minutes", n)
		}
	})
}
