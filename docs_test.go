package belfry_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	table     = regexp.MustCompile(`(?m)(^ *\|.*\n)+`)
	tableRule = regexp.MustCompile(`^ *\|[-:| ]+\|$`)
	cellEnd   = regexp.MustCompile(`[^\\]\|`)
)

// A blank line ends a table: the rows after it are shown as text.
func TestTablesInDocsAreWhole(t *testing.T) {
	paths, err := filepath.Glob("docs/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no docs: %v", err)
	}
	for _, path := range append(paths, "README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range table.FindAllString(codeBlock.ReplaceAllString(string(text), ""), -1) {
			rows := strings.Split(strings.TrimRight(found, "\n"), "\n")
			if len(rows) < 3 || !tableRule.MatchString(rows[1]) {
				t.Errorf("%s: these rows are no table:\n%s", path, found)
			}
			for _, row := range rows {
				if len(cellEnd.FindAllString(row, -1)) != len(cellEnd.FindAllString(rows[0], -1)) {
					t.Errorf("%s: this row has not the columns of its table: %s", path, row)
				}
			}
		}
	}
}

// docs/security.md names a test for every control.
func TestProofsOfTheSecurityPageExist(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	proofs := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(page, -1)
	for _, m := range proofs {
		if !declared[string(m[1])] {
			t.Errorf("docs/security.md names %s, which does not exist", m[1])
		}
	}
	if rows := regexp.MustCompile(`(?m)^\| S\d+ \|`).FindAll(page, -1); len(rows) != 33 || len(proofs) < 60 {
		t.Errorf("docs/security.md has %d controls with %d proofs", len(rows), len(proofs))
	}
}
