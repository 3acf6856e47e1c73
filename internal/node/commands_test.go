package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/command"
)

func TestWhereTheShellIsRefused(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string // empty: it is valid
	}{
		{func(c *Config) { c.AllowShell = true }, ""},
		{func(c *Config) { c.AllowShell, c.Listen = true, "[::1]:7070" }, ""},
		{func(c *Config) { c.AllowShell, c.DatabaseURL = true, "postgres://x/y" }, "--allow-shell is only for the embedded database"},
		{func(c *Config) { c.AllowShell, c.Listen, c.APIKeyFile = true, ":7070", "keys" }, "--allow-shell is only for a node that this machine alone reaches"},
		{func(c *Config) { c.AllowShell, c.Listen, c.APIKeyFile = true, "10.0.0.1:7070", "keys" }, "this machine alone"},
		{func(c *Config) {
			c.Commands, c.DatabaseURL, c.Roles = &command.File{}, "postgres://x/y", []string{RoleAPI}
		}, "--commands needs the role worker"},
		{func(c *Config) { c.Commands, c.DatabaseURL = &command.File{}, "postgres://x/y" }, ""},
	} {
		c := Defaults()
		tt.change(&c)
		text := ""
		if err, ok := c.Validate().(*belfry.Error); ok {
			for _, f := range err.Fields {
				text += fmt.Sprintln(f.Field, f.Message)
			}
		}
		if (text == "") != (tt.want == "") || !strings.Contains(text, tt.want) {
			t.Errorf("got %q, want %q", text, tt.want)
		}
	}
}
