package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

func TestMigrateConcurrentlyAndTwice(t *testing.T) {
	url := pgtest.Database(t, nil)
	done := make(chan error)
	for range 4 {
		go func() { done <- Migrate(context.Background(), url) }()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	before := schemaColumns(t, url)
	if err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, schemaColumns(t, url)); diff != "" || len(before) < 50 {
		t.Errorf("migrating again changed the schema of %d columns:\n%s", len(before), diff)
	}
}

func TestMigrateRefusesNewerSchema(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `INSERT INTO belfry.migrations VALUES (9999, clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Options{URL: url})
	if err == nil || !strings.Contains(err.Error(), "9999") {
		t.Errorf("got %v", err)
	}
}

func schemaColumns(t *testing.T, url string) []string {
	t.Helper()
	rows, err := connect(t, url).Query(t.Context(), `SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = 'belfry' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}
