package node

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// A node with the grants of the documentation runs jobs, makes partitions and drops them, and
// may change nothing in the schema.
func TestRoleThatOnlyReadsAndWrites(t *testing.T) {
	text, err := os.ReadFile("../../docs/database.md")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := url.Parse(pgtest.Database(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	database := strings.TrimPrefix(admin.Path, "/")
	suffix := "_" + belfry.NewToken().String()[:8] // roles belong to the whole server
	var scripts []string
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		scripts = append(scripts, strings.NewReplacer("belfry_owner", "belfry_owner"+suffix, "belfry_node", "belfry_node"+suffix, "DATABASE belfry", "DATABASE "+pgx.Identifier{database}.Sanitize()).Replace(block[1]))
	}
	execute := func(address, sql string) error {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(t.Context(), sql)
		return err
	}
	as := func(role, password string) string {
		u := *admin
		u.User = url.UserPassword(role+suffix, password)
		return u.String()
	}
	owner, member := as("belfry_owner", "a secret"), as("belfry_node", "another secret")
	if err := execute(admin.String(), scripts[0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), admin.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		for _, role := range []string{"belfry_owner", "belfry_node"} {
			if _, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+suffix+" CASCADE; DROP ROLE "+role+suffix); err != nil {
				t.Error(err)
			}
		}
	})
	if _, _, err := Migrate(t.Context(), member, false); err == nil || !strings.Contains(err.Error(), "run belfry migrate as a role that may") {
		t.Errorf("the role of a node may migrate: %v", err)
	}
	before, missing, err := Migrate(t.Context(), owner, false)
	if err != nil || before != 0 || len(missing) == 0 {
		t.Fatalf("%d, %q, error %v", before, missing, err)
	}
	if err := execute(owner, scripts[1]); err != nil {
		t.Fatal(err)
	}
	if after, missing, err := Migrate(t.Context(), member, true); err != nil || len(missing) != 0 || after == 0 {
		t.Errorf("%d, %q, error %v", after, missing, err)
	}
	for _, sql := range []string{"CREATE TABLE belfry.x ()", "DROP TABLE belfry.jobs", "ALTER TABLE belfry.jobs ADD x text", "DELETE FROM belfry.migrations", "TRUNCATE belfry.jobs"} {
		if err := execute(member, sql); err == nil {
			t.Errorf("%s succeeds", sql)
		}
	}

	base, stop := startNode(t, func(c *Config) { c.DatabaseURL, c.AllowTargets = member, []string{"127.0.0.1"} })
	if run := runNow(t, base, receiver(t)); run.Status != belfry.RunSucceeded {
		t.Errorf("the run is %s: %s", run.Status, run.Error)
	}
	stop()

	partitions := func() (n int) {
		conn, err := pgx.Connect(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_inherits WHERE inhparent = 'belfry.history'::regclass`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := partitions()
	tomorrow := time.Now().UTC().AddDate(0, 0, 2).Format(time.DateOnly)
	if err := execute(owner, `SELECT belfry.drop_history_partition('`+tomorrow+`'), belfry.make_history_partition('2020-02-29')`); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Options{URL: member})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Prune(t.Context(), 24*time.Hour); err != nil {
		t.Error(err)
	}
	if n := partitions(); n != all {
		t.Errorf("there are %d partitions, not %d", n, all)
	}
	if err := s.DeleteNamespace(t.Context(), "default"); err != nil {
		t.Error(err)
	}
}

func TestWarningAboutTheDatabase(t *testing.T) {
	var out bytes.Buffer
	s, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.Database(t, postgres.Migrate), Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if strings.Contains(out.String(), "sslmode") {
		t.Errorf("a database on this machine is warned about: %s", out.String())
	}
}
