package postgres

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestWarningAboutTLS(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://db.example.com/x":                                      "sslmode=prefer",
		"postgres://db.example.com/x?sslmode=disable":                      "sslmode=disable",
		"postgres://db.example.com/x?sslmode=allow":                        "sslmode=allow",
		"postgres://db.example.com/x?sslmode=require":                      "sslmode=require",
		"postgres://db.example.com/x?sslmode=verify-ca":                    "sslmode=verify-ca",
		"postgres://db.example.com/x?sslmode=verify-full":                  "",
		"postgres://a.example.com,b.example.com/x?sslmode=verify-full":     "",
		"postgres://a.example.com,b.example.com/x?sslmode=disable":         "sslmode=disable",
		"postgres://127.0.0.1,db.example.com/x?sslmode=require":            "host=db.example.com",
		"postgres://10.0.0.1/x?sslmode=require":                            "host=10.0.0.1",
		"postgres://127.0.0.1/x?sslmode=disable":                           "",
		"postgres://[::1]/x":                                               "",
		"postgres://localhost/x":                                           "",
		"postgres:///x?host=/run/postgresql":                               "",
		"host=db.example.com user=ann password=secret sslmode=verify-full": "",
	} {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		(&connection{config: config}).warnAboutTLS(slog.New(slog.NewTextHandler(&out, nil)))
		if said := out.String(); (want == "") != (said == "") || !strings.Contains(said, want) || strings.Count(said, "\n") > 1 {
			t.Errorf("%s: the log says %q, want %q", url, said, want)
		}
	}
}
