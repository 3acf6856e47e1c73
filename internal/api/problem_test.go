package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestWhatIsToldOfAnError(t *testing.T) {
	internals := errors.New("SELECT * FROM jobs: /var/lib/belfry.db: disk I/O error")
	for _, tt := range []struct {
		name   string
		err    error
		status int
		code   belfry.Code
		says   string
	}{
		{"one of ours", belfry.Errorf(belfry.NotFound, "there is no job 7"), 404, belfry.NotFound, "there is no job 7"},
		{"one of ours with a cause", belfry.Errorf(belfry.Conflict, "store the job: %w", internals), 409, belfry.Conflict, "store the job"},
		{"one of ours around its cause", belfry.Errorf(belfry.Conflict, "%w happened", internals), 409, belfry.Conflict, "something happened"},
		{"one of ours inside another", fmt.Errorf("ask: %w: %w", belfry.Errorf(belfry.Invalid, "no"), internals), 422, belfry.Invalid, "no"},
		{"an outage", belfry.Errorf(belfry.Unavailable, "reach %s", internals), 503, belfry.Unavailable, "the database cannot be reached; try again"},
		{"a fault of ours", belfry.Errorf(belfry.Internal, "read %s", internals), 500, belfry.Internal, "something went wrong here"},
		{"a stranger", internals, 500, belfry.Internal, "something went wrong here"},
		{"a code of a later version", belfry.Errorf("quota", "quota of %s", internals), 500, belfry.Internal, "something went wrong here"},
		{"too much", belfry.Errorf(belfry.TooLarge, "the body is too large"), 413, belfry.TooLarge, "the body is too large"},
	} {
		told := tell(tt.err)
		if told.status != tt.status || told.code != tt.code || !strings.HasPrefix(told.detail, tt.says) || strings.Contains(told.detail, "SELECT") {
			t.Errorf("%s: got %+v", tt.name, told)
		}
	}
}
