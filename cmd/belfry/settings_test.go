package main

import (
	"strings"
	"testing"
)

func TestSettingsHideThePasswordOfTheDatabase(t *testing.T) {
	for _, address := range []string{"postgres://belfry:hunter2secret@db/belfry", "postgres://db/belfry?user=belfry&password=hunter2secret", "host=db user=belfry password=hunter2secret"} {
		cmd := serveCommand()
		if err := cmd.Flags().Set("database-url", address); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, s := range settingsOf(cmd.Flags()) {
			found = found || s.Name == "database-url" && s.Value != ""
			if strings.Contains(s.Value, "hunter2secret") || strings.Contains(s.Doc, "BELFRY_") || s.Name == "help" {
				t.Errorf("%s: the setting is %+v", address, s)
			}
		}
		if !found {
			t.Errorf("%s: the setting is missing", address)
		}
	}
}
