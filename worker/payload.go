package worker

import (
	"context"

	"github.com/belfry-sh/belfry"
)

// HandleJSON registers a function as the handler of one type of job that is
// given the payload as a T. A payload that does not decode fails the attempt
// with an error that names the member at fault, and the function is not called.
// Names are as in Mux.Handle.
func HandleJSON[T any](m *Mux, name string, fn func(ctx context.Context, run *belfry.Run, in T) error) {
	if fn == nil {
		panic("worker: a handler needs a name and must not be nil")
	}
	m.HandleFunc(name, func(ctx context.Context, run *belfry.Run) error {
		in, err := Payload[T](run)
		if err != nil {
			return err
		}
		return fn(ctx, run, in)
	})
}
