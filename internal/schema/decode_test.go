package schema_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

type item struct {
	RunID   belfry.ID `json:"run_id" required:"true"`
	Attempt int       `json:"attempt" required:"true" min:"1" max:"9"`
}

type input struct {
	_        struct{}                 `doc:"An input of every kind."`
	Name     string                   `json:"name" required:"true" maxlen:"10" example:"abc"`
	Count    int                      `json:"count,omitempty" min:"1" max:"100" implicit:"7"`
	Retries  belfry.Optional[int]     `json:"max_retries,omitzero" min:"0" max:"5"`
	Ratio    float64                  `json:"ratio,omitempty" min:"0.5" max:"2"`
	Base     belfry.Optional[float64] `json:"base,omitzero" min:"0" max:"1"`
	On       bool                     `json:"on,omitempty"`
	At       time.Time                `json:"at,omitzero"`
	Token    belfry.Token             `json:"token,omitzero"`
	Overlap  belfry.Overlap           `json:"overlap,omitempty"`
	DST      belfry.DSTOverlap        `json:"dst_overlap,omitempty" zero:"auto"`
	Method   string                   `json:"method,omitempty" enum:"GET,POST"`
	Priority belfry.Priority          `json:"priority,omitempty"`
	Delays   belfry.Delays            `json:"delays,omitempty"`
	Tags     []string                 `json:"tags,omitempty" query:"tag" maxitems:"3" itemmaxlen:"5"`
	Queues   []string                 `json:"queue,omitempty" single:"true" implicit:"[\"default\"]"`
	Code     string                   `json:"code,omitempty" pattern:"^[a-z]+$" patterndoc:"must have lower-case letters only"`
	Held     []item                   `json:"held,omitempty" maxitems:"2"`
	Shown    string                   `json:"shown,omitempty" readonly:"true"`
}

// fields writes errors as lines "field: message".
func fields(errors []belfry.FieldError) string {
	lines := make([]string, len(errors))
	for i, e := range errors {
		lines[i] = e.Field + ": " + e.Message
	}
	return strings.Join(lines, "\n")
}

func decode(text string) (input, string) {
	var in input
	errors, syntax := schema.Decode([]byte(text), &in)
	if syntax != nil {
		return in, "syntax: " + syntax.Message
	}
	return in, fields(errors)
}

func TestDecodeReadsEveryKindOfField(t *testing.T) {
	id, _ := belfry.ParseID("01a22f39-15c0-8d3b-a6c4-90e15f7b2d08")
	var token belfry.Token
	token.UnmarshalText([]byte("9f86d081884c7d659a2feaa0c55ad015"))
	in, errors := decode(`{"name": "x", "count": 3, "max_retries": 0, "ratio": 1.5, "base": 0.25, "on": true, "at": "2027-03-01T09:00:00+01:00",
		"token": "9f86d081884c7d659a2feaa0c55ad015", "overlap": "QUEUE", "dst_overlap": "Auto", "method": "post", "priority": 9, "delays": [1, 2.5], "tags": ["a", "b"], "queue": "mail",
		"code": "ab", "held": [{"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 2}], "shown": "ignored"}`)
	want := input{
		Name: "x", Count: 3, Retries: belfry.Some(0), Ratio: 1.5, Base: belfry.Some(0.25), On: true, At: time.Date(2027, 3, 1, 8, 0, 0, 0, time.UTC),
		Token: token, Overlap: belfry.OverlapQueue, Method: "POST", Priority: belfry.PriorityHigh, Delays: "1,2.5", Tags: []string{"a", "b"}, Queues: []string{"mail"},
		Code: "ab", Held: []item{{id, 2}},
	}
	if diff := cmp.Diff(want, in, cmp.AllowUnexported(belfry.Optional[int]{}, belfry.Optional[float64]{})); diff != "" || errors != "" {
		t.Errorf("errors %q, difference (-want +got):\n%s", errors, diff)
	}
}

func TestDecodeErrorsNameFieldAndRemedy(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"wrong kinds", `{"name": 1, "count": "3", "ratio": true, "on": "yes", "tags": {}, "overlap": [], "held": 7}`,
			"name: must be a string, not a number\ncount: must be a whole number, not a string\nratio: must be a number, not a boolean\non: must be true or false, not a string\n" +
				"tags: must be an array of strings, not an object\noverlap: must be a string, not an array\nheld: must be an array of objects, not a number"},
		{"a fraction for a whole number", `{"name": "x", "count": 1.5}`, "count: must be a whole number, not 1.5"},
		{"an exponent for a whole number", `{"name": "x", "count": 1e2}`, "count: must be a whole number, not 1e2"},
		{"a number without end", `{"name": "x", "ratio": 1e999}`, "ratio: must be a number, not 1e999"},
		{"an object for a string", `{"name": {}}`, "name: must be a string, not an object"},
		{"a string for an optional number", `{"name": "x", "max_retries": "3"}`, "max_retries: must be a whole number, not a string"},
		{"an array for a name in camelCase", `{"name": "x", "maxRetries": []}`, "maxRetries: must be a whole number, not an array"},
		{"a boolean for an optional number", `{"name": "x", "base": true}`, "base: must be a number, not a boolean"},
		{"a number that is too large for the machine", `{"name": "x", "count": 99999999999999999999}`, "count: must be a whole number, not 99999999999999999999"},
		{"not an instant", `{"name": "x", "at": "tomorrow"}`, `at: must be an instant with an offset or Z, for example "2027-03-01T09:00:00+01:00" or "2027-03-01T08:00:00Z"`},
		{"an instant out of range", `{"name": "x", "at": "1969-12-31T23:59:59Z"}`, "at: must be in the years 1970 to 2499"},
		{"an instant without an offset", `{"name": "x", "at": "2027-03-01T09:00:00"}`, `at: must be an instant with an offset or Z, for example "2027-03-01T09:00:00+01:00" or "2027-03-01T08:00:00Z"`},
		{"an instant that leaves the range by its offset", `{"name": "x", "at": "2499-12-31T23:59:59-01:00"}`, "at: must be in the years 1970 to 2499"},
		{"a number for an instant", `{"name": "x", "at": 1790000000}`, "at: must be a string, not a number"},
		{"not a token", `{"name": "x", "token": "abc"}`, "token: must be 32 hexadecimal digits"},
		{"an item of the wrong kind", `{"name": "x", "tags": ["a", 1]}`, "tags[1]: must be a string, not a number"},
		{"a nested object", `{"name": "x", "held": [{"run_id": "nope", "attempt": 0, "atempt": 1}, 7]}`,
			"held[0].run_id: must be a UUID\nheld[0].attempt: must be from 1 to 9, not 0\nheld[0].atempt: is unknown; did you mean \"attempt\"?\nheld[1]: must be an object, not a number\n" +
				"held[1].run_id: is required\nheld[1].attempt: is required"},
		{"too many nested objects", `{"name": "x", "held": [{}, {}, {}]}`, "held: has 3 items, the maximum is 2"},
		{"a priority that does not exist", `{"name": "x", "priority": "urgent"}`, `priority: must be "high", "normal" or "low", or a number from 0 to 9, where 9 is first`},
		{"delays that are none", `{"name": "x", "delays": "5s"}`, "delays: must be an array of seconds, for example [5, 30, 120]"},
		{"delays that are null", `{"name": "x", "delays": [1, null, null]}`, "delays[1]: must not be null\ndelays[2]: must not be null"},
		{"a list for a single name", `{"name": "x", "queue": [["a"]]}`, "queue[0]: must be a string, not an array"},
		{"a number for a name or a list", `{"name": "x", "queue": 7}`, "queue: must be an array of strings, not a number"},
		{"another case", `{"name": "x", "Count": 1}`, `Count: is unknown; did you mean "count"?`},
		{"a long name", `{"name": "x", "` + strings.Repeat("y", 1000) + `": 1}`, strings.Repeat("y", 64) + "...: is unknown; known are name, count, max_retries, ratio, base, on, at, token, overlap, dst_overlap, method, priority, delays, tags, queue, code, held"},
		{"an unknown field with a near one", `{"name": "x", "cuont": 1}`, `cuont: is unknown; did you mean "count"?`},
		{"an unknown field", `{"name": "x", "zzzzzzzz": 1}`, "zzzzzzzz: is unknown; known are name, count, max_retries, ratio, base, on, at, token, overlap, dst_overlap, method, priority, delays, tags, queue, code, held"},
		{"a duplicate", `{"name": "x", "count": 1, "count": 2}`, "count: is duplicated"},
		{"a duplicate inside", `{"name": "x", "held": [{"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1, "attempt": 2}]}`, "held[0].attempt: is duplicated"},
		{"a duplicate by an escape", `{"name": "x", "count": 1, "c\u006funt": 2}`, "count: is duplicated"},
		{"a duplicate by another spelling", `{"name": "x", "max_retries": 1, "maxRetries": 2}`, "maxRetries: means the same as max_retries, which is set too; remove one of them"},
		{"a required field", `{}`, `name: is required; for example "abc"`},
		{"everything at once", `{"count": 0, "max_retries": 6, "ratio": 3, "overlap": "queu", "tags": ["a", "b", "c", "d"], "code": "X"}`,
			"count: must be from 1 to 100, not 0\nname: is required; for example \"abc\"\nmax_retries: must be from 0 to 5, not 6\nratio: must be from 0.5 to 2, not 3\n" +
				"overlap: must be \"skip\", \"queue\" or \"parallel\"; did you mean \"queue\"?\ntags: has 4 items, the maximum is 3\ncode: must have lower-case letters only"},
		{"a text that is too long", `{"name": "abcdefghijk"}`, "name: has 11 characters, the maximum is 10"},
		{"a control character", `{"name": "a\nb"}`, "name: must not contain control characters, such as U+000A at character 2"},
		{"an item that is too long", `{"name": "x", "tags": ["abcdef"]}`, "tags: has an item that has 6 characters, the maximum is 5"},
		{"an enumeration of the tag", `{"name": "x", "method": "PUT"}`, `method: must be "GET" or "POST"`},

		{"no JSON", `{"name": }`, "syntax: is not valid JSON: line 1, column 10: invalid character '}' looking for beginning of value"},
		{"two values", "{}\n{}", "syntax: is not valid JSON: line 2, column 1: invalid character '{' after top-level value"},
		{"an end that comes too early", `{"name": "x"`, "syntax: is not valid JSON: line 1, column 13: unexpected end of JSON"},
		{"nothing", " \n", "syntax: is empty; it must be a JSON object"},
		{"no object", `[1]`, "syntax: must be a JSON object, not an array"},
		{"null", `null`, "syntax: must be a JSON object, not null"},
		{"a string", `"job"`, "syntax: must be a JSON object, not a string"},
		{"no UTF-8", "{\"name\": \"\xff\"}", "syntax: is not valid JSON: line 1, column 11: invalid UTF-8"},
		{"too deep", `{"name": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "syntax: is not valid JSON: line 1, column 41: nested deeper than 32 levels"},
	} {
		if _, got := decode(tt.text); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, strings.ReplaceAll(got, "\n", "\n     "), strings.ReplaceAll(tt.want, "\n", "\n     "))
		}
	}
}

func TestDecodeOverAValueKeepsWhatIsNotGiven(t *testing.T) {
	in := input{Name: "x", Count: 3, Retries: belfry.Some(2), Tags: []string{"a"}, Overlap: belfry.OverlapQueue}
	given, errors, syntax := schema.Decoder{}.Decode([]byte(`{"count": null, "maxRetries": null, "tags": null, "overlap": ""}`), &in)
	if syntax != nil || len(errors) > 0 || len(given) != 4 {
		t.Fatalf("given %v, errors %v, %v", given, errors, syntax)
	}
	if diff := cmp.Diff(input{Name: "x"}, in, cmp.AllowUnexported(belfry.Optional[int]{}, belfry.Optional[float64]{})); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}

func TestDecodeLimitsMembersAndErrors(t *testing.T) {
	var many strings.Builder
	for i := range 201 {
		many.WriteString(`,"f` + strings.Repeat("x", i) + `":1`)
	}
	if _, got := decode(`{"name":"x"` + many.String() + `}`); got != "syntax: has more than 200 members" {
		t.Errorf("got %q", got)
	}
	var some strings.Builder
	for i := range 100 {
		some.WriteString(`,"zq` + strings.Repeat("x", i) + `":1`)
	}
	if _, got := decode(`{"name":"x"` + some.String() + `}`); strings.Count(got, "\n") != 49 {
		t.Errorf("%d errors are reported", 1+strings.Count(got, "\n"))
	}
}

func TestDecodeQuery(t *testing.T) {
	for _, tt := range []struct{ name, query, want string }{
		{"every kind", "name=x&count=3&ratio=1.5&on=true&at=2027-03-01T09:00:00%2B01:00&tag=a&tag=b&priority=low", ""},
		{"a plus sign that was not encoded", "name=x&at=2027-03-01T09:00:00+01:00", ""},
		{"unknown parameters", "name=x&cuont=1&limits=3", "cuont: is not a parameter here; did you mean \"count\"?\nlimits: is not a parameter here; known are name, count, max_retries, ratio, base, on, at, token, overlap, dst_overlap, method, priority, delays, tag, queue, code, held, shown"},
		{"a duplicate", "name=x&name=y", "name: is duplicated"},
		{"empty parameters", "name=x&count=&on=&at=&tag=&priority=", ""},
		{"limits", "name=x&count=0&ratio=3&tag=abcdef&method=PUT", "count: must be from 1 to 100, not 0\nratio: must be from 0.5 to 2, not 3\nmethod: must be \"GET\" or \"POST\"\ntag: has an item that has 6 characters, the maximum is 5"},
		{"wrong values", "name=x&count=z&on=yes&at=now", "at: must be an instant with an offset or Z, for example \"2027-03-01T09:00:00+01:00\" or \"2027-03-01T08:00:00Z\"\ncount: must be a whole number, not z\non: must be true or false"},
		{"control characters", "name=a%00b", "name: must not contain control characters, such as U+0000 at character 2"},
		{"no UTF-8", "name=%ff", "name: must be valid UTF-8"},
	} {
		values, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		var in input
		if got := fields(schema.DecodeQuery(values, &in)); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		if tt.want == "" && !in.At.IsZero() && !in.At.Equal(time.Date(2027, 3, 1, 8, 0, 0, 0, time.UTC)) {
			t.Errorf("%s: at is %v", tt.name, in.At)
		}
	}
}

func TestSetImplicit(t *testing.T) {
	in := input{}
	schema.SetImplicit(&in)
	if diff := cmp.Diff(input{Count: 7, Queues: []string{"default"}}, in, cmpopts.EquateEmpty(), cmp.AllowUnexported(belfry.Optional[int]{}, belfry.Optional[float64]{})); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"max_retries", "max_runs", "schedule", "timezone"}
	for written, want := range map[string]string{"max_retires": "max_retries", "shedule": "schedule", "Time-Zone": "timezone", "runs": "max_runs", "colour": "", strings.Repeat("x", 100): ""} {
		if got := schema.Nearest(written, names); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}

func TestDecoderAliasesHintsAndIgnoredMembers(t *testing.T) {
	d := schema.Decoder{
		Ignored: []string{"created_at"},
		Hints:   map[string]string{"size": "is named count"},
		Aliases: map[string]func(schema.Member) ([]schema.Member, []belfry.FieldError){
			"limits": func(m schema.Member) ([]schema.Member, []belfry.FieldError) {
				if m.Value[0] != '{' {
					return nil, []belfry.FieldError{{Field: m.Written, Message: "must be an object"}}
				}
				return []schema.Member{{Name: "count", Written: m.Written + ".number", Value: []byte("9")}}, nil
			},
		},
	}
	for _, tt := range []struct {
		name, text, want string
		count            int
	}{
		{"an ignored member", `{"created_at": {"any": 1}}`, "", 0},
		{"an ignored member in camelCase", `{"createdAt": 1}`, "", 0},
		{"a hint", `{"size": 1}`, "size: is named count", 0},
		{"an alias", `{"limits": {}}`, "", 9},
		{"an error of an alias", `{"limits": 1}`, "limits: must be an object", 0},
		{"an alias and what it stands for", `{"limits": {}, "count": 1}`, "limits.number: means the same as count, which is set too; remove one of them", 1},
	} {
		var in input
		_, errors, syntax := d.Decode([]byte(tt.text), &in)
		if got := fields(errors); got != tt.want || syntax != nil || in.Count != tt.count {
			t.Errorf("%s: got count %d and %q, %v, want %d and %q", tt.name, in.Count, got, syntax, tt.count, tt.want)
		}
	}
}

func TestDecodeSingleTextForAList(t *testing.T) {
	for text, want := range map[string][]string{
		`{"name": "x"}`:                      {"default"},
		`{"name": "x", "queue": "a"}`:        {"a"},
		`{"name": "x", "queue": ["a"]}`:      {"a"},
		`{"name": "x", "queue": ["a", "b"]}`: {"a", "b"},
		`{"name": "x", "queue": []}`:         {"default"},
		`{"name": "x", "queue": null}`:       {"default"},
		`{"name": "x", "queue": ""}`:         {"default"},
	} {
		in, errors := decode(text)
		if diff := cmp.Diff(want, in.Queues, cmpopts.EquateEmpty()); diff != "" || errors != "" {
			t.Errorf("%s: errors %q, difference (-want +got):\n%s", text, errors, diff)
		}
	}
}

func TestChooseAccepted(t *testing.T) {
	status := schema.For[belfry.Manifest]().Field("status")
	for _, tt := range []struct{ text, shown, settable string }{ // errors
		{"paused", "", ""},
		{"ACTIVE", "", ""},
		{"Scheduled", "", ""},
		{"running", "", `must be "active", "paused" or "scheduled"`},
		{"resumed", `must be "active", "paused" or "scheduled"`, `must be "active", "paused" or "scheduled"`},
		{"pause", `must be "active", "paused" or "scheduled"; did you mean "paused"?`, `must be "active", "paused" or "scheduled"; did you mean "paused"?`},
	} {
		_, shown := status.Choose(tt.text)
		_, settable := status.ChooseAccepted(tt.text)
		if shown != tt.shown || settable != tt.settable {
			t.Errorf("%s: got %q and %q, want %q and %q", tt.text, shown, settable, tt.shown, tt.settable)
		}
	}
}

func TestCheckSkipsZeroFieldsAndDecodeRefusesThem(t *testing.T) {
	if errors := schema.Check(&input{Name: "x"}); len(errors) > 0 {
		t.Errorf("got %v", errors)
	}
	if got, want := fields(schema.Check(&input{Count: -1, Held: []item{{Attempt: 10}}})), "name: is required; for example \"abc\"\ncount: must be from 1 to 100, not -1\nheld[0].run_id: is required\nheld[0].attempt: must be from 1 to 9, not 10"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, got := decode(`{"name": "x", "count": 0, "ratio": 0}`); got != "count: must be from 1 to 100, not 0\nratio: must be from 0.5 to 2, not 0" {
		t.Errorf("got %q", got)
	}
	if _, got := decode(`{"name": "x", "count": null, "ratio": null}`); got != "" {
		t.Errorf("null: got %q", got)
	}
}

func TestMergeErrors(t *testing.T) {
	first := []belfry.FieldError{{Field: "a", Message: "1"}, {Field: "b", Message: "2"}}
	got := schema.MergeErrors(first, []belfry.FieldError{{Field: "b", Message: "3"}, {Field: "c", Message: "4"}})
	if fields(got) != "a: 1\nb: 2\nc: 4" || len(first) != 2 {
		t.Errorf("got %v of %v", got, first)
	}
}

func TestSnakeCase(t *testing.T) {
	for name, want := range map[string]string{"maxRetries": "max_retries", "max_retries": "max_retries", "MaxRetries": "MaxRetries", "aB": "a_b", "": "", "X": "X", "idA1": "id_a1", "é": "é", strings.Repeat("aB", 40): strings.Repeat("aB", 40)} {
		if got := schema.SnakeCase(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"name":"x"}`, `{"name":"x","held":[{"run_id":"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08","attempt":1}]}`, `{"maxRetries":null,"tags":["a"],"queue":"b"}`, `{"a":{"b":[1,{"c":"\u0000"}]}}`, `[]`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var in input
		given, errors, syntax := schema.Decoder{}.Decode(text, &in)
		if syntax != nil && (len(given) > 0 || len(errors) > 0) {
			t.Errorf("a syntax error and fields %v, errors %v", given, errors)
		}
		schema.Check(&in)
	})
}
