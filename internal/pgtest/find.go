package pgtest

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// minMajor is the oldest PostgreSQL that Belfry supports.
const minMajor = 15

// installed finds PostgreSQL on this machine once for the whole test binary.
var installed = sync.OnceValues(func() (string, error) { return find(candidates()) })

// candidates lists the folders that may hold PostgreSQL's programs, the most deliberate choice first:
// what PATH leads to, then the homes of the usual packages, the newest version of each first.
func candidates() []string {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/libexec/postgresql*",  // Alpine
		"/usr/pgsql-*/bin",          // the project's own RPMs
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/Library/PostgreSQL/*/bin",
		"/usr/local/pgsql/bin",
	} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return numberIn(b) - numberIn(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// find returns the first folder that holds a server new enough. Its error says what was looked at.
func find(dirs []string) (string, error) {
	var old []string
	for _, dir := range dirs {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
			continue
		}
		major, err := version(dir)
		if err != nil {
			continue
		}
		if major >= minMajor {
			return dir, nil
		}
		old = append(old, fmt.Sprintf("version %d in %s", major, dir))
	}
	if len(old) > 0 {
		return "", fmt.Errorf("find PostgreSQL: version %d or newer is needed, there is only %s",
			minMajor, strings.Join(old, ", "))
	}
	return "", errors.New("find PostgreSQL: no folder with initdb and postgres on this machine")
}

// version asks the server in dir for its major version.
func version(dir string) (int, error) {
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask for the version in %s: %w", dir, err)
	}
	_, rest, _ := strings.Cut(string(out), ")") // postgres (PostgreSQL) 15.18 (Debian ...)
	return numberIn(rest), nil
}

var digits = regexp.MustCompile(`\d+`)

// numberIn returns the first number in s, or 0.
func numberIn(s string) int {
	n, _ := strconv.Atoi(digits.FindString(s))
	return n
}
