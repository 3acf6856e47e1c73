package belfry_test

import (
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
