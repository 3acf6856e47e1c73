package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install makes a folder that looks like PostgreSQL of a version.
func install(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindTakesTheFirstServerThatIsNewEnough(t *testing.T) {
	empty, old := t.TempDir(), install(t, "14.9 (Ubuntu 14.9-0ubuntu0.22.04.1)")
	fifteen, next := install(t, "15.18 (Debian 15.18-0+deb12u1)"), install(t, "19beta1")
	clientOnly := install(t, "17.2")
	if err := os.Remove(filepath.Join(clientOnly, "postgres")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		dirs   []string
		want   string
		reason string
	}{
		{"the first of two", []string{fifteen, next}, fifteen, ""},
		{"a beta", []string{next}, next, ""},
		{"after an old one", []string{old, next}, next, ""},
		{"after an empty and a missing folder", []string{empty, filepath.Join(empty, "missing"), fifteen}, fifteen, ""},
		{"after a folder without a server", []string{clientOnly, fifteen}, fifteen, ""},
		{"only an old one", []string{old}, "", "version 14"},
		{"nothing", nil, "", "no folder"},
	} {
		got, err := find(c.dirs)
		if got != c.want {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
		if c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("%s: the error is %v, want it to say %q", c.name, err, c.reason)
		}
	}
}
