package belfry_test

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/belfry-sh/belfry"

// The rows of the module, lowest last. A package imports from the rows below its own,
// and within a row none imports another, except for what mayImport adds.
var (
	vocabulary = []string{"belfry", "internal/schedule", "internal/wheel", "internal/cache", "internal/sanitize", "internal/jsontext", "internal/schema", "internal/secret", "internal/encrypt", "internal/auth", "internal/share", "internal/webhook"}
	decisions  = append([]string{"internal/plan"}, vocabulary...)
	contracts  = append([]string{"internal/store", "worker", "client"}, decisions...)
	rules      = append([]string{"internal/target", "internal/command", "internal/validate", "internal/explain", "internal/openapi", "internal/metrics", "internal/tracing", "internal/notify", "internal/broker", "internal/oidc", "internal/secretstore"}, contracts...)
	parts      = append([]string{
		"internal/control", "internal/api", "internal/web", "internal/scheduler", "internal/election", "internal/alert", "internal/dispatch",
		"internal/store/postgres", "internal/store/sqlite",
	}, rules...)
)

const (
	cobra  = "github.com/spf13/cobra"
	pflag  = "github.com/spf13/pflag"
	pgx    = "github.com/jackc/pgx/v5"
	sqlite = "modernc.org/sqlite"
	xsync  = "golang.org/x/sync"
	xtime  = "golang.org/x/time"
	yaml   = "go.yaml.in/yaml/v3"
	ssrf   = "code.dny.dev/ssrf"

	etcd      = "go.etcd.io/etcd"
	grpc      = "google.golang.org/grpc"
	zap       = "go.uber.org/zap" // the log of etcd's client
	zooKeeper = "github.com/go-zookeeper/zk"

	prometheus  = "github.com/prometheus/client_golang"
	propagation = "go.opentelemetry.io/otel/propagation"
)

// mayImport says for every package what it may import beside the standard
// library. Tests may import what they like. A module stands for its packages.
var mayImport = map[string][]string{
	"cmd/belfry": append([]string{"internal/node", "internal/bench", "internal/importer", cobra, pflag, yaml}, rules...),

	"internal/bench": append([]string{"internal/node", xsync}, parts...),
	"internal/node":  append([]string{xsync}, parts...),

	"internal/api":       append([]string{"internal/control"}, rules...),
	"internal/web":       append([]string{"internal/control"}, rules...),
	"internal/control":   rules,
	"internal/alert":     append([]string{"internal/notify"}, contracts...),
	"internal/scheduler": append([]string{"internal/metrics"}, contracts...),
	"internal/election":  append([]string{etcd, grpc, zap, zooKeeper}, contracts...),
	"internal/dispatch": append([]string{
		"internal/broker", "internal/metrics", "github.com/nats-io/nats.go", "github.com/twmb/franz-go", "github.com/rabbitmq/amqp091-go", "github.com/aws/aws-sdk-go-v2",
	}, contracts...),
	"internal/store/postgres": append([]string{pgx, "internal/metrics", "internal/store/sqlstore"}, contracts...),
	"internal/store/sqlite":   append([]string{sqlite, "internal/metrics", "internal/store/sqlstore"}, contracts...),
	"internal/store/sqlstore": contracts,

	"internal/validate": append([]string{"internal/target", "internal/command"}, decisions...),
	"internal/explain":  append([]string{"internal/store"}, decisions...),
	"internal/target":   append([]string{ssrf, "worker"}, vocabulary...),
	"internal/command":  append([]string{"worker", yaml, "golang.org/x/sys"}, vocabulary...),
	"internal/broker": append([]string{"internal/target", yaml, xsync,
		"github.com/twmb/franz-go", "github.com/nats-io/nats.go", "github.com/rabbitmq/amqp091-go", "github.com/gomodule/redigo", "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"}, vocabulary...),
	"internal/notify":   append([]string{"internal/target"}, vocabulary...),
	"internal/oidc":     append([]string{"internal/validate", "github.com/coreos/go-oidc", "golang.org/x/oauth2", xtime}, vocabulary...),
	"internal/openapi":  vocabulary,
	"internal/importer": {"belfry", "internal/schedule"},
	"internal/metrics":  {"belfry", "internal/store", prometheus},
	"internal/tracing":  append([]string{"go.opentelemetry.io/otel"}, contracts...),

	"internal/secretstore": contracts,

	"internal/store": decisions,
	"worker":         {"belfry", "internal/sanitize", "internal/secret", propagation},
	"client":         {"belfry", "internal/jsontext", "internal/sanitize", "internal/schema", propagation},

	"internal/plan": {"belfry", "internal/schedule"},

	"belfry":            nil,
	"internal/schedule": nil,
	"internal/wheel":    nil,
	"internal/auth":     {"belfry"},
	"internal/encrypt":  nil,
	"internal/share":    {"belfry"},
	"internal/cache":    {"belfry"},
	"internal/sanitize": nil,
	"internal/jsontext": nil,
	"internal/schema":   {"belfry", "internal/jsontext"},
	"internal/secret":   {"belfry", "internal/sanitize"},
	"internal/webhook":  nil,

	"examples/receiver":  nil,
	"examples/worker-go": {"belfry", "client", "worker"},

	"internal/porttest":   nil,                        // ports for the servers of tests; only rows for tests have it
	"internal/pgtest":     {"internal/porttest", pgx}, // starts servers for tests; no row has it
	"internal/promtest":   {"internal/porttest"},      // the same
	"internal/servertest": {"internal/porttest"},      // the same
	"internal/oidctest":   nil,                        // the same

	"internal/browsertest": {"github.com/chromedp"}, // the same
	"internal/chaos":       nil,                     // tests only

	"internal/control/controltest": append([]string{"internal/control", "internal/store/sqlite"}, rules...), // for tests; no row has it
}

func TestPackagesImportOnlyFromBelow(t *testing.T) {
	for _, p := range packages(t) {
		allowed, known := mayImport[p.name]
		if !known && len(p.production) > 0 {
			t.Errorf("package %s is not in the table: say in mayImport, in imports_test.go, what it may import", p.name)
			continue
		}
		for _, f := range p.production {
			for _, spec := range f.ast.Imports {
				path := strings.Trim(spec.Path.Value, `"`)
				if !inStandardLibrary(path) && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, path) }) {
					t.Errorf("%s imports %s: beside the standard library, %s may import only %q", f.path, path, p.name, allowed)
				}
			}
		}
	}
}

// covers tells whether an entry of the table stands for an import path. Packages
// of our own stand for themselves alone, foreign modules for all that is in them.
func covers(entry, path string) bool {
	switch {
	case path == module:
		return entry == "belfry"
	case strings.HasPrefix(path, module+"/"):
		return entry == path[len(module)+1:]
	default:
		return path == entry || strings.HasPrefix(path, entry+"/")
	}
}

func inStandardLibrary(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestTheTableOfImportsIsUnderstood(t *testing.T) {
	for _, tt := range []struct {
		entry, path string
		want        bool
	}{
		{"belfry", module, true},
		{"belfry", module + "/internal/plan", false},
		{"internal/store", module + "/internal/store", true},
		{"internal/store", module + "/internal/store/sqlite", false},
		{pgx, pgx, true},
		{pgx, pgx + "/pgconn", true},
		{sqlite, sqlite + "3/x", false},
	} {
		if got := covers(tt.entry, tt.path); got != tt.want {
			t.Errorf("%s covers %s: got %v, want %v", tt.entry, tt.path, got, tt.want)
		}
	}
	for name, allowed := range mayImport {
		if slices.Contains(allowed, "internal/pgtest") || slices.Contains(allowed, "internal/promtest") || slices.Contains(allowed, "internal/browsertest") {
			t.Errorf("%s may import a package that is for tests alone", name)
		}
	}
}
