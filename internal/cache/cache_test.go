package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGetComputesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache[string, int32]
		var computed atomic.Int32
		slow := func(context.Context) (int32, error) {
			time.Sleep(time.Second)
			return computed.Add(1), nil
		}
		get := func(want int32) {
			t.Helper()
			if got, err := c.Get(t.Context(), "k", 5*time.Second, slow); err != nil || got != want {
				t.Errorf("got %d, %v, want %d", got, err, want)
			}
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { get(1) })
		}
		all.Wait()
		time.Sleep(5*time.Second - time.Nanosecond)
		get(1)
		time.Sleep(time.Nanosecond)
		get(2)
		c.Clear()
		get(3)
	})
}

func TestErrorsAreNotKept(t *testing.T) {
	var c Cache[string, int]
	boom := errors.New("boom")
	if _, err := c.Get(t.Context(), "k", time.Hour, func(context.Context) (int, error) { return 0, boom }); err != boom {
		t.Errorf("the error is %v", err)
	}
	if got, err := c.Get(t.Context(), "k", time.Hour, func(context.Context) (int, error) { return 7, nil }); err != nil || got != 7 {
		t.Errorf("after it: %d, %v", got, err)
	}
}

// Who waits may leave, and whoever began may too: the value is computed for the others.
func TestCancelledRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache[string, int]
		ctx, cancel := context.WithCancel(t.Context())
		slow := func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			return 7, ctx.Err()
		}
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.Get(ctx, "k", time.Hour, slow) })
		synctest.Wait()
		all.Go(func() {
			if _, err := c.Get(ctx, "k", time.Hour, slow); !errors.Is(err, context.Canceled) {
				t.Errorf("a request that ended got %v", err)
			}
		})
		all.Go(func() {
			if got, err := c.Get(t.Context(), "k", time.Hour, slow); err != nil || got != 7 {
				t.Errorf("the other got %d, %v", got, err)
			}
		})
		synctest.Wait()
		cancel()
		all.Wait()
	})
}
