package store

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

// Migrate brings a schema up to date. The files migrations/NNNN_name.sql are numbered
// from 1 without gaps; those above the current version are applied in order. It
// refuses a database whose version is newer than this program.
func Migrate(files fs.FS, current int, apply func(version int, script string) error) error {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return err
	}
	if current > len(names) {
		return belfry.Errorf(belfry.Invalid, "the database has schema version %d, this program knows %d: run a newer belfry", current, len(names))
	}
	for i, name := range names {
		number, _, _ := strings.Cut(path.Base(name), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return fmt.Errorf("migration %q is out of order, number %d was expected", path.Base(name), i+1)
		}
	}
	for i, name := range names[current:] {
		script, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := apply(current+i+1, string(script)); err != nil {
			return fmt.Errorf("%s: %w", path.Base(name), err)
		}
	}
	return nil
}
