package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

func TestPublicErrorHidesCauses(t *testing.T) {
	cause := errors.New("SELECT * FROM jobs: /var/lib/belfry.db: disk I/O error")
	for _, tt := range []struct {
		name   string
		err    error
		status int
		code   belfry.Code
		detail string
	}{
		{"known", belfry.Errorf(belfry.NotFound, "there is no job 7"), 404, belfry.NotFound, "there is no job 7"},
		{"known with a cause", belfry.Errorf(belfry.Conflict, "store the job: %w", cause), 409, belfry.Conflict, "store the job"},
		{"known around its cause", belfry.Errorf(belfry.Conflict, "%w happened", cause), 409, belfry.Conflict, "something happened"},
		{"known inside another", fmt.Errorf("ask: %w: %w", belfry.Errorf(belfry.Invalid, "no"), cause), 422, belfry.Invalid, "no"},
		{"busy", fmt.Errorf("create a job: %w", control.ErrBusy), 503, belfry.Unavailable, "the server is busy with other schedules; try again"},
		{"unavailable", belfry.Errorf(belfry.Unavailable, "reach %s", cause), 503, belfry.Unavailable, "the database cannot be reached; try again"},
		{"internal", belfry.Errorf(belfry.Internal, "read %s", cause), 500, belfry.Internal, "internal error; the server logs the cause with the request id"},
		{"unknown", cause, 500, belfry.Internal, "internal error; the server logs the cause with the request id"},
		{"a code of a later version", belfry.Errorf("quota", "quota of %s", cause), 500, belfry.Internal, "internal error; the server logs the cause with the request id"},
		{"too large", belfry.Errorf(belfry.TooLarge, "the body is too large"), 413, belfry.TooLarge, "the body is too large"},
	} {
		e := publicError(tt.err)
		if e.status() != tt.status || e.code != tt.code || e.detail != tt.detail || strings.Contains(e.detail, "SELECT") {
			t.Errorf("%s: got %+v", tt.name, e)
		}
	}
}
