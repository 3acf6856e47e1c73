package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

func TestMigrate(t *testing.T) {
	p := &testCLI{t: t}
	url := pgtest.Database(t, nil)
	wanted := p.ok("migrate", "--database-url", url, "--check")
	if !strings.HasPrefix(wanted.out, "would apply 0001_initial.sql\n") || !regexp.MustCompile(`\nThe schema is at version 0 and would be at \d+\.\n$`).MatchString(wanted.out) {
		t.Errorf("got %s", wanted.out)
	}
	if again := p.ok("migrate", "--database-url", url, "--check"); again.out != wanted.out {
		t.Errorf("a check changes something: %s", again.out)
	}
	t.Setenv("BELFRY_DATABASE_URL", url)
	done := p.ok("migrate")
	if !strings.HasPrefix(done.out, "applied 0001_initial.sql\n") || !regexp.MustCompile(`\nThe schema was at version 0 and is at \d+\.\n$`).MatchString(done.out) {
		t.Errorf("got %s", done.out)
	}
	for _, args := range [][]string{{"migrate"}, {"migrate", "--check"}} {
		if r := p.ok(args...); !regexp.MustCompile(`^The schema is up to date, at version \d+\.\n$`).MatchString(r.out) {
			t.Errorf("%q: got %s", args, r.out)
		}
	}
	t.Setenv("BELFRY_DATABASE_URL", "")
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"--database-url is required", []string{"migrate"}},
		{"cannot connect to PostgreSQL", []string{"migrate", "--database-url", "postgres://ann:secret@127.0.0.1:1/x"}},
	} {
		if r := p.run(tt.args...); r.code == 0 || !strings.Contains(r.err, tt.want) || strings.Contains(r.err, "secret") {
			t.Errorf("%q: got %d, %s", tt.args, r.code, r.err)
		}
	}
}
