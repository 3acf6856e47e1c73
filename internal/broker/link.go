package broker

import (
	"context"
	"sync"

	"golang.org/x/sync/singleflight"
)

// link is a connection that is opened when it is needed, and again after it was lost. Those
// who need it at the same time wait for one attempt to open it, each no longer than its
// context lasts.
type link[T any] struct {
	open  func() (T, error)
	lost  func(T) bool
	close func(T)

	group singleflight.Group

	mu     sync.Mutex // guards the fields below
	value  T
	opened bool
	ended  bool // by end: a connection that opens later is closed
}

func (l *link[T]) get(ctx context.Context) (value T, err error) {
	l.mu.Lock()
	value, usable := l.value, l.opened && !l.lost(l.value)
	l.mu.Unlock()
	if usable {
		return value, nil
	}
	select {
	case <-ctx.Done():
		return value, ctx.Err()
	case result := <-l.group.DoChan("", l.reopen):
		if result.Err != nil {
			return value, result.Err
		}
		return result.Val.(T), nil
	}
}

func (l *link[T]) reopen() (any, error) {
	value, err := l.open()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		l.close(value)
		return value, nil
	}
	if l.opened {
		l.close(l.value) // what is left of the one before
	}
	l.value, l.opened = value, true
	return value, nil
}

// end closes the connection for good.
func (l *link[T]) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended = true; l.opened {
		l.close(l.value)
	}
}
