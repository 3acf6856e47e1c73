package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// pauses are the waits before a call of unknown outcome is repeated.
var pauses = [...]time.Duration{50 * time.Millisecond, 250 * time.Millisecond}

// insist asks until the outcome is known, which is when there is no error, a
// *belfry.Error or an answer from before. The store's contract makes repeating the same call safe. Giving
// up is Unavailable, with the cause beside it for the log.
func insist(ctx context.Context, doing string, ask func() error) error {
	for _, pause := range pauses {
		err := ask()
		if known(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return unavailable(doing, err)
		case <-time.After(pause):
		}
	}
	err := ask()
	if known(err) {
		return err
	}
	return unavailable(doing, err)
}

func known(err error) bool {
	var e *belfry.Error
	var earlier *store.Repeated
	return err == nil || errors.As(err, &e) || errors.As(err, &earlier)
}

// unavailable joins what people may see with a cause that they may not.
func unavailable(doing string, cause error) error {
	shown := belfry.Errorf(belfry.Unavailable, "the database does not answer; try again")
	return fmt.Errorf("%s: %w: %w", doing, shown, cause)
}
