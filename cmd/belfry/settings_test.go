package main

import (
	"strings"
	"testing"
)

func TestSettingsHidePasswordsInAddresses(t *testing.T) {
	for address, flag := range map[string]string{
		"postgres://belfry:hunter2secret@db/belfry": "database-url", "postgres://db/belfry?user=belfry&password=hunter2secret": "database-url",
		"host=db user=belfry password=hunter2secret": "database-url", "nats://belfry:hunter2secret@a:4222,b:4222": "dispatch",
		"sqs://AKIA0:a/hunter2secret+b@eu-central-1?prefix=x": "dispatch", "amqp://guest:p@hunter2secret@mq/v": "dispatch",
	} {
		cmd := serveCommand()
		if err := cmd.Flags().Set(flag, address); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, s := range settingsOf(cmd.Flags()) {
			found = found || s.Name == flag && s.Value != ""
			if strings.Contains(s.Value, "hunter2secret") || strings.Contains(s.Doc, "BELFRY_") || s.Name == "help" {
				t.Errorf("%s: the setting is %+v", address, s)
			}
		}
		if !found {
			t.Errorf("%s: the setting is missing", address)
		}
	}
}
