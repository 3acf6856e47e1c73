package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestMigrateAppliesNewScriptsInOrder(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 12 { // more than nine: the order is not that of single digits
		files[fmt.Sprintf("migrations/%04d_name.sql", i+1)] = &fstest.MapFile{Data: fmt.Appendf(nil, "script %d", i+1)}
	}
	failure := errors.New("it fails")
	without := func(name string) fs.FS {
		rest := fstest.MapFS{}
		for n, file := range files {
			if n != name {
				rest[n] = file
			}
		}
		return rest
	}
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	for _, tt := range []struct {
		name    string
		files   fs.FS
		current int
		failAt  int
		applied []int
		err     string
	}{
		{name: "a new database", files: files, applied: all},
		{name: "an older database", files: files, current: 9, applied: all[9:]},
		{name: "an up-to-date database", files: files, current: 12},
		{name: "a newer database", files: files, current: 13, err: "the database has schema version 13, this program knows 12: run a newer belfry"},
		{name: "a failure", files: files, current: 3, failAt: 5, applied: all[3:5], err: "0005_name.sql: it fails"},
		{name: "a gap", files: without("migrations/0007_name.sql"), err: `migration "0008_name.sql" is out of order, number 7 was expected`},
		{name: "no first script", files: without("migrations/0001_name.sql"), err: `migration "0002_name.sql" is out of order, number 1 was expected`},
		{name: "no number", files: fstest.MapFS{"migrations/name.sql": {}}, err: `migration "name.sql" is out of order, number 1 was expected`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var applied []int
			err := store.Migrate(tt.files, tt.current, func(version int, script string) error {
				applied = append(applied, version)
				if want := fmt.Sprint("script ", version); script != want {
					t.Errorf("version %d is %q, wants %q", version, script, want)
				}
				if version == tt.failAt {
					return failure
				}
				return nil
			})
			if !slices.Equal(applied, tt.applied) {
				t.Errorf("applied %v, wants %v", applied, tt.applied)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, wants %q", err, tt.err)
			}
			if tt.failAt != 0 && !errors.Is(err, failure) {
				t.Errorf("%v does not wrap the failure", err)
			}
			if tt.current > 12 && belfry.CodeOf(err) != belfry.Invalid {
				t.Errorf("a newer database is %v", belfry.CodeOf(err))
			}
		})
	}
}
