package schema_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// taggedTypes are the types of package belfry whose fields have tags.
var taggedTypes = []any{belfry.Actor{}, belfry.Namespace{}, belfry.Quota{},
	belfry.Acknowledgement{}, belfry.Alert{}, belfry.AlertFilter{}, belfry.AlertItem{}, belfry.Channel{}, belfry.Subscription{}, belfry.Monitor{},
	belfry.Fleet{}, belfry.FleetDatabase{}, belfry.FleetDuty{}, belfry.FleetNode{}, belfry.FleetPool{}, belfry.FleetTotal{}, belfry.FleetWorker{},
	belfry.Forecast{}, belfry.ForecastQuery{}, belfry.JitterForecast{}, belfry.Spike{}, belfry.SpikeJob{}, belfry.SpikeSchedule{},
	belfry.Attempt{}, belfry.Backfill{}, belfry.BackfillResult{}, belfry.Bulk{}, belfry.BulkFailure{}, belfry.BulkResult{}, belfry.Claim{}, belfry.ClaimReply{},
	belfry.ClaimedRun{}, belfry.CommandPayload{}, belfry.CommandReport{}, belfry.DeadFilter{}, belfry.DeadGroup{}, belfry.DeadLetter{}, belfry.DeadResult{}, belfry.Discard{}, belfry.Event{}, belfry.EventFilter{}, belfry.Explanation{},
	belfry.FieldChange{}, belfry.FieldError{}, belfry.FinishReply{}, belfry.FinishRequest{}, belfry.HTTPPayload{}, belfry.Heartbeat{}, belfry.HeartbeatReply{},
	belfry.HeldAttempt{}, belfry.ImportResult{}, belfry.Job{}, belfry.JobDiff{}, belfry.JobFilter{}, belfry.JobHistory{}, belfry.LastResult{}, belfry.LogChunk{}, belfry.LogQuery{}, belfry.Manifest{}, belfry.MessagePayload{}, belfry.Occurrence{},
	belfry.Preview{}, belfry.PreviewRequest{}, belfry.Problem{}, belfry.Redrive{}, belfry.Result{}, belfry.Resume{}, belfry.Revision{}, belfry.Rollback{},
	belfry.RedriveOptions{}, belfry.RuleSummary{}, belfry.Run{}, belfry.JobRunFilter{}, belfry.RunFilter{}, belfry.RunLog{}, belfry.Spec{}, belfry.TraceContext{}, belfry.Trigger{}, belfry.TriggerResult{}, belfry.Wait{},
}

// enumerations are the enumerations of package belfry.
var enumerations = []belfry.Enum{belfry.ActorKind(""), belfry.Role(""),
	belfry.AlertKind(""), belfry.AlertStatus(""), belfry.ChannelType(""), belfry.MonitorStatus(""), belfry.NodeState(""),
	belfry.Action(""), belfry.Backoff(""), belfry.Code(""), belfry.DSTGap(""), belfry.DSTOverlap(""), belfry.Decision(""), belfry.DiffResult(""), belfry.Election(""), belfry.EventKind(""),
	belfry.JobStatus(""), belfry.MissedWindow(""), belfry.Outcome(""), belfry.Overlap(""), belfry.Priority(""), belfry.Reason(""), belfry.ResultStatus(""), belfry.RetryOn(""), belfry.RunKind(""),
	belfry.RunStatus(""), belfry.Verdict(""), belfry.WaitKind(""),
}

// source is what the source of package belfry declares.
type source struct {
	tagged    []string            // structs with tags
	enums     []string            // types with EnumValues
	constants map[string][]string // values of typed string constants, by type
}

func parseRoot(t *testing.T) source {
	t.Helper()
	paths, err := filepath.Glob("../../*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source files: %v", err)
	}
	found := source{constants: map[string][]string{}}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			found.add(n)
			return true
		})
	}
	slices.Sort(found.tagged)
	slices.Sort(found.enums)
	return found
}

func (s *source) add(n ast.Node) {
	switch n := n.(type) {
	case *ast.TypeSpec:
		of, ok := n.Type.(*ast.StructType)
		if ok && slices.ContainsFunc(of.Fields.List, func(f *ast.Field) bool { return f.Tag != nil }) {
			s.tagged = append(s.tagged, n.Name.Name)
		}
	case *ast.FuncDecl:
		if n.Name.Name == "EnumValues" && n.Recv != nil {
			s.enums = append(s.enums, n.Recv.List[0].Type.(*ast.Ident).Name)
		}
	case *ast.ValueSpec:
		kind, ok := n.Type.(*ast.Ident)
		if !ok {
			return
		}
		for _, value := range n.Values {
			if text, ok := value.(*ast.BasicLit); ok && text.Kind == token.STRING {
				plain, _ := strconv.Unquote(text.Value)
				s.constants[kind.Name] = append(s.constants[kind.Name], plain)
			}
		}
	}
}

func typeNames[T any](values []T) (names []string) {
	for _, v := range values {
		names = append(names, reflect.TypeOf(v).Name())
	}
	slices.Sort(names)
	return names
}

func TestEveryTaggedTypeIsTested(t *testing.T) {
	root := parseRoot(t)
	if diff := cmp.Diff(root.tagged, typeNames(taggedTypes)); diff != "" {
		t.Errorf("types with tags (-source +test):\n%s", diff)
	}
	if diff := cmp.Diff(root.enums, typeNames(enumerations)); diff != "" {
		t.Errorf("enumerations (-source +test):\n%s", diff)
	}
}

func TestEnumValuesAreTheConstants(t *testing.T) {
	root := parseRoot(t)
	zero, accepted := map[string]string{}, map[string][]string{} // words that only tags have, by type
	for _, of := range taggedTypes {
		for _, f := range schema.Of(reflect.TypeOf(of)).Fields {
			if f.Zero != "" {
				zero[f.Type.Name()] = f.Zero
			}
			accepted[f.Type.Name()] = append(accepted[f.Type.Name()], f.Accept...)
		}
	}
	for _, of := range enumerations {
		name := reflect.TypeOf(of).Name()
		var values, want []string
		for _, v := range of.EnumValues() {
			values = append(values, v.Value)
			if v.Doc == "" {
				t.Errorf("%s %q has no description", name, v.Value)
			}
		}
		for _, value := range root.constants[name] {
			if value == "" {
				value = zero[name]
			}
			if slices.Contains(values, value) || !slices.Contains(accepted[name], value) {
				want = append(want, value)
			}
		}
		slices.Sort(values)
		slices.Sort(want)
		if diff := cmp.Diff(want, values); diff != "" {
			t.Errorf("%s (-constants +EnumValues):\n%s", name, diff)
		}
	}
}

var (
	tagPair = regexp.MustCompile(`([a-z]+):"(?:[^"\\]|\\.)*"`)
	tagKeys = []string{
		"json", "query", "doc", "example", "default", "implicit", "zero", "form", "required", "readonly", "single", "multiline", "enum", "accept",
		"min", "max", "minlen", "maxlen", "minitems", "maxitems", "itemmaxlen", "pattern", "patterndoc",
	}
	flagKeys = []string{"required", "readonly", "single", "multiline"}
)

func TestEveryTagIsUnderstood(t *testing.T) {
	for _, of := range taggedTypes {
		kind := reflect.TypeOf(of)
		for i := range kind.NumField() {
			f := kind.Field(i)
			name := kind.Name() + "." + f.Name
			for _, pair := range tagPair.FindAllStringSubmatch(string(f.Tag), -1) {
				if !slices.Contains(tagKeys, pair[1]) {
					t.Errorf("%s has the unknown tag %s", name, pair[1])
				}
				if value := f.Tag.Get(pair[1]); value == "" || slices.Contains(flagKeys, pair[1]) && value != "true" {
					t.Errorf("%s: the tag %s is %q", name, pair[1], value)
				}
			}
			if rest := strings.TrimSpace(tagPair.ReplaceAllString(string(f.Tag), "")); rest != "" {
				t.Errorf("%s: the tag has %q", name, rest)
			}
		}
	}
}

func TestEveryFieldHasADescription(t *testing.T) {
	for _, of := range taggedTypes {
		name := reflect.TypeOf(of).Name()
		s := schema.Of(reflect.TypeOf(of))
		if s.Doc == "" && name != "FieldError" && name != "Spec" { // they have no paragraph of their own
			t.Errorf("%s has no description", name)
		}
		for _, f := range s.Fields {
			if !strings.HasSuffix(f.Doc, ".") {
				t.Errorf("%s.%s is described as %q", name, f.Name, f.Doc)
			}
		}
	}
}

// literal is the JSON of the value of a tag.
func literal(f *schema.Field, value string) []byte {
	quoted, _ := json.Marshal(value)
	switch f.Kind {
	case schema.Text, schema.Time, schema.ID, schema.Token:
		return quoted
	case schema.Custom:
		if !json.Valid([]byte(value)) {
			return quoted
		}
	}
	return []byte(value)
}

func TestExamplesAndDefaultsAreValid(t *testing.T) {
	count := 0
	for _, of := range taggedTypes {
		kind := reflect.TypeOf(of)
		for _, f := range schema.Of(kind).Fields {
			for tag, value := range map[string]string{"example": f.Example, "default": f.Default, "implicit": f.Implicit} {
				if value == "" {
					continue
				}
				count++
				v := reflect.New(kind)
				text := `{"` + f.Name + `": ` + string(literal(f, value)) + `}`
				if err := json.Unmarshal([]byte(text), v.Interface()); err != nil {
					t.Errorf("%s of %s.%s: %s: %v", tag, kind.Name(), f.Name, text, err)
					continue
				}
				errors := schema.Check(v.Interface())
				if tag != "example" { // a zero is refused while it is decoded
					_, more, _ := schema.Decoder{}.Decode([]byte(text), v.Interface())
					errors = append(errors, more...)
				}
				for _, e := range errors {
					if e.Field == f.Name || strings.HasPrefix(e.Field, f.Name+"[") {
						t.Errorf("%s of %s.%s: %s %s", tag, kind.Name(), f.Name, value, e.Message)
					}
				}
			}
			if f.Default != "" && f.Implicit != "" {
				t.Errorf("%s.%s has a default and an implicit value", kind.Name(), f.Name)
			}
		}
	}
	if count < 150 {
		t.Errorf("only %d values were checked", count)
	}
}

func TestDefaultsAreThoseOfDefaultSpec(t *testing.T) {
	defaults := belfry.DefaultSpec()
	var want belfry.Spec
	for _, f := range schema.For[belfry.Spec]().Fields {
		if f.Default == "" {
			continue
		}
		if err := json.Unmarshal([]byte(`{"`+f.Name+`": `+string(literal(f, f.Default))+`}`), &want); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, defaults, cmp.AllowUnexported(belfry.Optional[int]{}, belfry.Optional[float64]{})); diff != "" {
		t.Errorf("DefaultSpec (-tags +got):\n%s", diff)
	}
	for _, f := range schema.For[belfry.Manifest]().Fields {
		if f.Owner != reflect.TypeFor[belfry.Spec]() && f.Default != "" {
			t.Errorf("%s has a default that DefaultSpec does not know", f.Name)
		}
	}
}

// Constants say the same as tags.
func TestTagsAgreeWithConstants(t *testing.T) {
	spec, claim, result := schema.For[belfry.Manifest](), schema.For[belfry.Claim](), schema.For[belfry.Result]()
	got := map[string]any{
		"maxlen of name": spec.Field("name").MaxLen, "default of queue": spec.Field("queue").Default, "implicit of max_missed": spec.Field("max_missed").Implicit,
		"implicit of max_queued": spec.Field("max_queued").Implicit, "maxitems of retry_delays": spec.Field("retry_delays").MaxItems,
		"maxlen of idempotency_key_template": spec.Field("idempotency_key_template").MaxLen, "max of retry_cap_seconds": *spec.Field("retry_cap_seconds").Max,
		"implicit of queue": claim.Field("queue").Implicit, "max of retry_after_seconds": *result.Field("retry_after_seconds").Max,
		"enum of type": spec.Field("type").Enum,
	}
	want := map[string]any{
		"maxlen of name": belfry.MaxName, "default of queue": belfry.DefaultQueue, "implicit of max_missed": strconv.Itoa(belfry.DefaultMaxMissed),
		"implicit of max_queued": strconv.Itoa(belfry.DefaultMaxQueued), "maxitems of retry_delays": belfry.MaxDelays,
		"maxlen of idempotency_key_template": belfry.MaxKeyTemplate, "max of retry_cap_seconds": belfry.MaxDelay.Seconds(),
		"implicit of queue": `["` + belfry.DefaultQueue + `"]`, "max of retry_after_seconds": belfry.MaxDelay.Seconds(),
		"enum of type": []belfry.EnumValue{{Value: belfry.TypeHTTP}, {Value: belfry.TypeWorker}, {Value: belfry.TypeCommand}, {Value: belfry.TypeMessage}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("difference (-constants +tags):\n%s", diff)
	}
}
