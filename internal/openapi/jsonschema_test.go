package openapi

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func newSchemas(request bool) *schemas {
	return &schemas{types: make(map[string]reflect.Type), request: request}
}

func TestSchemaOfTypes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value any
		want  string
	}{
		{"a string", "", `{"type":"string"}`},
		{"a whole number", 1, `{"type":"integer"}`},
		{"a number", 1.5, `{"type":"number"}`},
		{"a boolean", true, `{"type":"boolean"}`},
		{"an optional number", belfry.Some(1), `{"type":"integer"}`},
		{"any JSON", json.RawMessage(nil), `{}`},
		{"an instant", time.Time{}, `{"type":"string","format":"date-time"}`},
		{"an instant that may be null", new(time.Time), `{"type":["string","null"],"format":"date-time"}`},
		{"an id", belfry.ID{}, `{"type":"string","format":"uuid"}`},
		{"a token", belfry.Token{}, `{"type":"string","pattern":"^[0-9a-f]{32}$"}`},
		{"ids", []belfry.ID{}, `{"type":"array","items":{"type":"string","format":"uuid"}}`},
		{"a map of strings", map[string]string{}, `{"type":"object","additionalProperties":{"type":"string"}}`},
		{"delays", belfry.Delays(""), `{"type":"array","items":{"type":"number","minimum":0,"maximum":604800}}`},
		{"an enumeration", belfry.KindManual, `{"$ref":"#/components/schemas/RunKind"}`},
		{"an enumeration that may be null", new(belfry.RunKind), `{"anyOf":[{"$ref":"#/components/schemas/RunKind"},{"type":"null"}]}`},
		{"a struct", belfry.FieldError{}, `{"$ref":"#/components/schemas/FieldError"}`},
		{"codes", belfry.NotFound, `{"$ref":"#/components/schemas/ProblemCode"}`},
	} {
		got, err := json.Marshal(newSchemas(false).of(reflect.TypeOf(tt.value)))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s, error %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

type inner struct {
	Deep string `json:"deep"`
	Both string `json:"both"`
}

type outer struct {
	_        struct{} `doc:"All tags, with 'code'."`
	Untagged string
	inner
	Both    int           `json:"both" doc:"The shallower of two."`
	Number  int           `json:"number,omitempty" required:"true" min:"1" max:"9" implicit:"3" example:"4"`
	Name    string        `json:"name,omitempty" required:"true" maxlen:"10" default:"x"`
	Code    string        `json:"code,omitempty" pattern:"^[a-z]+$"`
	Queues  []string      `json:"queue,omitempty" single:"true" minitems:"1" maxitems:"2"`
	Method  string        `json:"method,omitempty" enum:"GET,PUT"`
	Kind    belfry.Reason `json:"reason,omitempty" enum:"poison"`
	Status  string        `json:"status,omitempty" enum:"a,b" accept:"b,c"`
	Shown   string        `json:"shown,omitempty" readonly:"true"`
	Gone    *time.Time    `json:"gone,omitempty"`
	Null    *time.Time    `json:"null"`
	Hidden  string        `json:"-"`
	private string        //lint:ignore U1000 it must not be described
}

func TestSchemaOfTags(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request bool
		patch   bool
		want    string
	}{
		{"a response", false, false, `{"type":"object","description":"All tags, with ` + "`code`" + `.","properties":{"deep":{"type":"string"},"both":{"type":"integer","description":"The shallower of two."},` +
			`"number":{"type":"integer","examples":[4]},"name":{"type":"string"},"code":{"type":"string","pattern":"^[a-z]+$"},"queue":{"type":"array","items":{"type":"string"}},` +
			`"method":{"type":"string","enum":["GET","PUT"]},"reason":{"type":"string","enum":["poison"]},"status":{"type":"string","enum":["a","b"]},"shown":{"type":"string"},` +
			`"gone":{"type":"string","format":"date-time"},"null":{"type":["string","null"],"format":"date-time"}},"required":["deep","both","null"]}`},
		{"a request", true, false, `{"type":"object","description":"All tags, with ` + "`code`" + `.","properties":{"deep":{"type":"string"},"both":{"type":"integer","description":"The shallower of two."},` +
			`"number":{"type":"integer","minimum":1,"maximum":9,"default":3,"examples":[4]},"name":{"type":"string","minLength":1,"maxLength":10,"default":"x"},"code":{"type":"string","pattern":"^[a-z]+$"},` +
			`"queue":{"minItems":1,"maxItems":2,"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"string"}]},"method":{"type":"string","enum":["GET","PUT"]},"reason":{"type":"string","enum":["poison"]},` +
			`"status":{"type":"string","enum":["b","c"]},"gone":{"type":"string","format":"date-time"},"null":{"type":["string","null"],"format":"date-time"}},"required":["number","name"],"additionalProperties":false}`},
		{"a patch", true, true, `{"type":"object","description":"All tags, with ` + "`code`" + `.","properties":{"deep":{"type":["string","null"]},"both":{"type":["integer","null"],"description":"The shallower of two."},` +
			`"number":{"type":["integer","null"],"minimum":1,"maximum":9,"default":3,"examples":[4]},"name":{"type":["string","null"],"minLength":1,"maxLength":10,"default":"x"},"code":{"type":["string","null"],"pattern":"^[a-z]+$"},` +
			`"queue":{"minItems":1,"maxItems":2,"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"string"},{"type":"null"}]},"method":{"anyOf":[{"type":"string","enum":["GET","PUT"]},{"type":"null"}]},` +
			`"reason":{"anyOf":[{"type":"string","enum":["poison"]},{"type":"null"}]},"status":{"anyOf":[{"type":"string","enum":["b","c"]},{"type":"null"}]},"gone":{"type":["string","null"],"format":"date-time"},` +
			`"null":{"type":["string","null"],"format":"date-time"}},"additionalProperties":false}`},
	} {
		got, err := json.Marshal(newSchemas(tt.request).object(reflect.TypeFor[outer](), tt.patch))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: error %v\ngot  %s\nwant %s", tt.name, err, got, tt.want)
		}
	}
}

func TestSchemaPanicsOnTypesWithoutOne(t *testing.T) {
	type Run struct {
		Other int `json:"other"`
	}
	for name, value := range map[string]any{
		"a channel":    make(chan int),
		"an interface": []any{},
		"two types of one name": struct {
			A belfry.Run `json:"a"`
			B Run        `json:"b"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s has a schema", name)
				}
			}()
			if kind := reflect.TypeOf(value); kind.Kind() == reflect.Struct {
				newSchemas(false).object(kind, false)
			} else {
				newSchemas(false).of(kind)
			}
		}()
	}
}

func TestMarkdown(t *testing.T) {
	for doc, want := range map[string]string{
		"'max_retries' is set":            "`max_retries` is set",
		"the job's own, or ('a' and 'b')": "the job's own, or (`a` and `b`)",
		"Default: 'x'.":                   "Default: `x`.",
	} {
		if got := Markdown(doc); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
