package client

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
)

// CancelRun ends a run: one that waits at once, and one that is running when its
// worker has let go of it, which the run does not show yet. One that is over in
// another way is a belfry.Conflict. To ask again does nothing.
func (c *Client) CancelRun(ctx context.Context, id belfry.ID) (run Run, err error) {
	_, err = c.json(ctx, newCall("cancel run", http.MethodPost, api+"/runs/"+id.String()+"/cancel"), nil, &run)
	return run, err
}

// CancelJob cancels the live runs of a job and drops what is planned for it. The
// job stays, and can be looked at, edited and triggered.
func (c *Client) CancelJob(ctx context.Context, ref string) (belfry.Job, error) {
	return c.jobOf(ctx, "cancel job", http.MethodPost, ref, "/cancel", nil)
}
