package main

import (
	"os"
	"strings"
	"testing"
)

const importPage = "docs/import.md"

// The page about imports shows files, commands with what they print, and parts of the
// files that they write.
func TestImportExamplesInTheDocumentation(t *testing.T) {
	t.Chdir("../..")
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	page := readText(t, importPage)
	shown := []string{"examples/import/crontab", "examples/import/cronjobs.yaml", "examples/import/schedules.json"}
	for _, path := range shown {
		if !strings.Contains(page, "\n"+readText(t, path)+"```\n") {
			t.Errorf("the page does not show %s as it is", path)
		}
	}
	work := t.TempDir()
	if err := os.CopyFS(work, os.DirFS("examples/import")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(work)
	var d docs
	got := d.run(t, page)
	if d.commands != 3 {
		t.Errorf("%d commands were run, want 3", d.commands)
	}
	if *rewrite {
		writeFile(t, root+"/"+importPage, got)
	} else if got != page {
		t.Errorf("the page has what is not true; to see the difference: go test ./cmd/belfry -run Documentation -rewrite")
	}
	for _, part := range []string{
		strings.SplitAfter(readText(t, "jobs.yaml"), "command: backup\n")[0],
		"commands:\n" + readText(t, "commands.yaml")[strings.Index(readText(t, "commands.yaml"), "  mail:\n"):],
	} {
		if !strings.Contains(page, "```yaml\n"+part+"```\n") {
			t.Errorf("the page does not have\n%s", part)
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
