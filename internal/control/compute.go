package control

import (
	"context"
	"runtime"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// ErrBusy is the Unavailable error of a request whose schedule could not be computed in
// time, because too many others were.
var ErrBusy = belfry.Errorf(belfry.Unavailable, "the server is busy with other schedules; try again")

const (
	maxComputeWait = 5 * time.Second        // for a turn
	shortCompute   = time.Millisecond       // what takes longer is followed by a rest
	maxComputeRest = 100 * time.Millisecond // also if the machine slept meanwhile
)

// computing bounds how many schedules are parsed and previewed at once. A schedule may
// take some milliseconds, and whoever sends many must leave the processors to firing: a
// turn that took long is not given to the next one before the same time has passed again.
type computing chan struct{}

func newComputing() computing { return make(computing, max(1, runtime.GOMAXPROCS(0)/2)) }

// do waits for its turn and calls f, which must not wait for anything. Without a turn
// the error is ErrBusy, or Unavailable if ctx ended.
func (c computing) do(ctx context.Context, f func() error) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	start := time.Now()
	defer func() {
		free := func() { <-c }
		if took := time.Since(start); took > shortCompute {
			time.AfterFunc(min(took, maxComputeRest), free)
		} else {
			free()
		}
	}()
	return f()
}

func (c computing) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return abandoned(ctx)
	}
	select {
	case c <- struct{}{}:
		return nil
	default:
	}
	late := time.NewTimer(maxComputeWait)
	defer late.Stop()
	select {
	case c <- struct{}{}:
		return nil
	case <-late.C:
		return ErrBusy
	case <-ctx.Done():
		return abandoned(ctx)
	}
}

// abandoned is the error of a computation that nobody waits for any more.
func abandoned(ctx context.Context) error {
	return belfry.Errorf(belfry.Unavailable, "the request ended before its schedule was computed: %w", context.Cause(ctx))
}

// compile parses the schedule of a spec.
func (c *Control) compile(ctx context.Context, spec belfry.Spec) (policy *plan.Policy, err error) {
	err = c.computing.do(ctx, func() (err error) {
		policy, err = c.defaults.Compile(spec)
		return err
	})
	return policy, err
}
