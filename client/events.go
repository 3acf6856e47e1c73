package client

import (
	"context"
	"iter"

	"github.com/belfry-sh/belfry"
)

// Events lists what people should hear of, latest first, like Jobs.
func (c *Client) Events(ctx context.Context) iter.Seq2[belfry.Event, error] {
	return pages[belfry.Event](ctx, c, "list events", api+"/events", nil)
}
