package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// line is a connection whose state the test knows.
type line struct{ lost, closed bool }

// lines makes a link whose connects take a second and fail while down is set.
func lines(down *bool) (l *link[*line], opened func() []*line) {
	var all []*line
	return &link[*line]{
		open: func() (*line, error) {
			time.Sleep(time.Second)
			if *down {
				return nil, errors.New("refused")
			}
			all = append(all, &line{})
			return all[len(all)-1], nil
		},
		lost:  func(l *line) bool { return l.lost },
		close: func(l *line) { l.closed = true },
	}, func() []*line { return slices.Clone(all) }
}

func TestLinkOpensOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		l, opened := lines(&down)
		start := time.Now()
		get := func(want error) {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if _, err := l.get(t.Context()); (err == nil) != (want == nil) {
						t.Errorf("got %v, want %v", err, want)
					}
				})
			}
			all.Wait()
		}
		get(errors.New("refused"))
		if took := time.Since(start); took != time.Second {
			t.Errorf("a hundred failed after %s", took)
		}
		down = false
		get(nil)
		get(nil)
		if len(opened()) != 1 {
			t.Fatalf("opened %d", len(opened()))
		}
		opened()[0].lost = true
		get(nil)
		if all := opened(); len(all) != 2 || !all[0].closed || all[1].closed {
			t.Errorf("after the loss: %v", all)
		}
		l.end()
		if !opened()[1].closed {
			t.Error("it is open after the end")
		}
	})
}

func TestLinkWaitsNoLongerThanTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := false
		l, opened := lines(&down)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		l.end() // before it is open
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all := opened(); len(all) != 1 || !all[0].closed {
			t.Errorf("what opened after the end is %v", all)
		}
	})
}
