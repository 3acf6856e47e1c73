package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry/internal/promtest"
)

const (
	rulesFile     = "../../deploy/prometheus/rules.yaml"
	scenarioFile  = "../../deploy/prometheus/rules_test.yaml"
	dashboardFile = "../../deploy/grafana/dashboard.json"
	scalerFile    = "../../deploy/kubernetes/keda-scaledobject.yaml"
)

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct{ Record, Alert, Expr string }

func readYAML(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func rules(t testing.TB) (list []rule) {
	t.Helper()
	var file ruleFile
	readYAML(t, rulesFile, &file)
	for _, group := range file.Groups {
		list = append(list, group.Rules...)
	}
	if len(list) < 10 {
		t.Fatalf("%s has %d rules: the test reads it wrongly", rulesFile, len(list))
	}
	return list
}

func failureRate(t testing.TB) string {
	for _, r := range rules(t) {
		if r.Record == "belfry:job_failure_rate" {
			return r.Expr
		}
	}
	t.Fatal("there is no rule for the failure rate")
	return ""
}

// scenarios are tests of rules by promtool.
type scenarios struct {
	Tests []struct {
		Name          string
		AlertRuleTest []struct {
			Alertname string `yaml:"alertname"`
			ExpAlerts []any  `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
		PromqlExprTest []struct {
			Expr       string
			ExpSamples []any `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

// Every rule has a scenario in which it fires, or has a value, and one in which it does not,
// and promtool confirms them.
func TestRulesFireAndDoNotFire(t *testing.T) {
	fires, quiet := map[string]bool{}, map[string]bool{}
	note := func(rule string, results []any) {
		if len(results) > 0 {
			fires[rule] = true
		} else {
			quiet[rule] = true
		}
	}
	var file scenarios
	readYAML(t, scenarioFile, &file)
	for _, test := range file.Tests {
		for _, a := range test.AlertRuleTest {
			note(a.Alertname, a.ExpAlerts)
		}
		for _, e := range test.PromqlExprTest {
			note(e.Expr, e.ExpSamples)
		}
	}
	for _, r := range rules(t) {
		if name := r.Record + r.Alert; !fires[name] || !quiet[name] {
			t.Errorf("%s: fires in a scenario: %v, does not in another: %v", name, fires[name], quiet[name])
		}
	}
	promtest.Run(t, "check", "rules", rulesFile)
	promtest.Run(t, "test", "rules", scenarioFile)
}

var (
	metricNames  = regexp.MustCompile(`\bbelfry[_:][a-z0-9_:]+`)
	foreignNames = regexp.MustCompile(`\b(up|process_[a-z_]+|go_[a-z_]+)\b`)
	labelValues  = regexp.MustCompile(`"[^"]*"`)
	selectors    = regexp.MustCompile(`(belfry_[a-z0-9_]+)\{([^}]*)\}`)
	matchers     = regexp.MustCompile(`([a-z_]+) *(?:=~|!~|!=|=) *"`)
)

// checkExpr reports names that no node exports and labels that a metric does not have.
func checkExpr(t *testing.T, where, expr string) {
	t.Helper()
	exported := map[string][]string{}
	for _, d := range declared {
		names := []string{d.name}
		if d.kind == kindHistogram {
			names = []string{d.name + "_bucket", d.name + "_count", d.name + "_sum"}
		}
		for _, name := range names {
			exported[name] = append([]string{"le", "instance", "job"}, d.labels...)
		}
	}
	for _, r := range rules(t) {
		exported[r.Record] = []string{"queue", "type"}
	}
	names := metricNames.FindAllString(labelValues.ReplaceAllString(expr, `""`), -1)
	for _, name := range names {
		if exported[name] == nil {
			t.Errorf("%s: nobody exports %s: %s", where, name, expr)
		}
	}
	if len(names) == 0 && !foreignNames.MatchString(expr) {
		t.Errorf("%s has no metric: %s", where, expr)
	}
	for _, s := range selectors.FindAllStringSubmatch(expr, -1) {
		for _, m := range matchers.FindAllStringSubmatch(s[2], -1) {
			if !strings.Contains(" "+strings.Join(exported[s[1]], " ")+" ", " "+m[1]+" ") {
				t.Errorf("%s: %s has no label %s: %s", where, s[1], m[1], expr)
			}
		}
	}
}

func TestRulesUseMetricsThatExist(t *testing.T) {
	for _, r := range rules(t) {
		checkExpr(t, r.Record+r.Alert, r.Expr)
	}
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ RefID, Expr string }
}

func dashboard(t *testing.T) (panels []panel) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title, UID    string
		SchemaVersion int
		Panels        []panel
		Templating    struct{ List []struct{ Name string } }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	for _, used := range regexp.MustCompile(`\$\{?([a-z_]+)`).FindAllStringSubmatch(string(text), -1) {
		if !variables[used[1]] && used[1] != "__all" {
			t.Errorf("the variable %s is not defined", used[1])
		}
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 36 || len(d.Panels) < 10 {
		t.Fatalf("the dashboard has title %q, uid %q, schema %d and %d panels", d.Title, d.UID, d.SchemaVersion, len(d.Panels))
	}
	return d.Panels
}

// Every expression of the dashboard and of the autoscaler uses what nodes export, and
// Prometheus can parse it. Panels do not overlap.
func TestDashboardAndAutoscalerUseMetricsThatExist(t *testing.T) {
	var exprs []string
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard(t) {
		if ids[p.ID] {
			t.Errorf("panel %s has the id %d of another", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken || x > 23 {
					t.Fatalf("panels %q and %q overlap, or one is too wide", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkExpr(t, "panel "+p.Title, target.Expr)
			exprs = append(exprs, strings.NewReplacer("$__rate_interval", "1m").Replace(target.Expr))
		}
	}
	var scaler struct {
		Spec struct {
			Triggers []struct {
				Type     string
				Metadata struct{ Query string }
			}
		}
	}
	readYAML(t, scalerFile, &scaler)
	if len(scaler.Spec.Triggers) == 0 {
		t.Error("the autoscaler has no trigger")
	}
	for _, trigger := range scaler.Spec.Triggers {
		checkExpr(t, scalerFile, trigger.Metadata.Query)
		exprs = append(exprs, trigger.Metadata.Query)
	}
	checkSyntax(t, exprs)
}

// checkSyntax has promtool parse expressions, as those of recording rules.
func checkSyntax(t *testing.T, exprs []string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("groups:\n- name: syntax\n  rules:\n")
	for i, expr := range exprs {
		text, err := json.Marshal(expr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "  - {record: expression_%d, expr: %s}\n", i, text)
	}
	file := filepath.Join(t.TempDir(), "syntax.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := promtest.Run(t, "check", "rules", file); !strings.Contains(out, fmt.Sprintf("%d rules found", len(exprs))) {
		t.Errorf("promtool says %s", out)
	}
}

// Every metric is shown in the dashboard: what nobody sees is not needed.
func TestDashboardShowsEveryMetric(t *testing.T) {
	var all strings.Builder
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			all.WriteString(target.Expr + "\n")
		}
	}
	for _, d := range declared {
		if !strings.Contains(all.String(), d.name) {
			t.Errorf("no panel shows %s", d.name)
		}
	}
}
