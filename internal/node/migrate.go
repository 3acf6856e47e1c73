package node

import (
	"context"

	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// Migrate brings the schema of a PostgreSQL database up to date. It returns the version that
// it had, 0 if there was none, and the scripts that were missing. With check it changes
// nothing.
func Migrate(ctx context.Context, url string, check bool) (before int, missing []string, err error) {
	before, missing, err = postgres.Versions(ctx, url)
	if err == nil && !check {
		err = postgres.Migrate(ctx, url)
	}
	return before, missing, err
}
