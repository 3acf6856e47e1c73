package jsontext_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
)

// recursive is a type of all that the codec treats in a way of its own.
type recursive struct {
	embedded
	Text     string            `json:"text"`
	Optional *string           `json:"optional,omitempty"`
	Int      int               `json:"int,omitempty"`
	Big      int64             `json:"big"`
	Float    float64           `json:"float"`
	Bool     bool              `json:"bool,omitempty"`
	At       time.Time         `json:"at,omitzero"`
	Before   *time.Time        `json:"before"`
	ID       belfry.ID         `json:"id,omitzero"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
	Bytes    []byte            `json:"bytes"`
	Texts    []string          `json:"texts"`
	Map      map[string]string `json:"map,omitempty"`
	Any      any               `json:"any"`
	Children []recursive       `json:"children,omitempty"`
	Parent   *recursive        `json:"parent,omitempty"`
	Untagged int
	Hidden   int `json:"-"`
}

type embedded struct {
	Deep string `json:"deep,omitempty"`
}

// tagged has options that only encoding/json knows.
type tagged struct {
	N int `json:"n,string"`
}

var codecTypes = []reflect.Type{
	reflect.TypeFor[recursive](), reflect.TypeFor[tagged](), reflect.TypeFor[belfry.ClaimReply](), reflect.TypeFor[belfry.FinishRequest](), reflect.TypeFor[belfry.FinishReply](),
	reflect.TypeFor[belfry.Heartbeat](), reflect.TypeFor[belfry.HeartbeatReply](), reflect.TypeFor[belfry.Claim](), reflect.TypeFor[belfry.Run](), reflect.TypeFor[[]belfry.Job](),
	reflect.TypeFor[belfry.Problem](), reflect.TypeFor[belfry.Event](), reflect.TypeFor[string](), reflect.TypeFor[any](), reflect.TypeFor[[]*int](),
}

var texts = []string{"", "default", "send-invoice", "a b", `quote " and \ backslash`, "<", ">", "&", "Grüße", "\u2028", "\xff", "\x01", "\n", "null"}

// fill sets a value to a random one that has a JSON form.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	if r.IntN(4) == 0 && depth > 0 {
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = time.Unix(r.Int64N(1<<33), r.Int64N(3)*int64(r.IntN(1e9))).In([]*time.Location{time.UTC, time.FixedZone("", 3600)}[r.IntN(2)])
		return
	case *json.RawMessage:
		*p = json.RawMessage([]string{`{}`, `{"a":1}`, ` [1, 2]`, `"<"`, `">"`, `"&"`, `null`, `"ü"`, `-1.5e3`, `[[],{}]`}[r.IntN(10)])
		return
	case *belfry.ID:
		*p = belfry.NewID(time.Unix(r.Int64N(1<<33), 0))
		return
	case *belfry.Token:
		*p = belfry.NewToken()
		return
	case *belfry.Delays:
		*p = "1,2.5"
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 42, 1 << 30, -1 << 62, 1<<63 - 1}[r.IntN(7)] >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat(r.NormFloat64())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		if depth < 3 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Slice:
		n := r.IntN(4)
		if depth == 0 || depth == 1 && r.IntN(2) == 0 {
			n = r.IntN(40)
		} else if depth > 3 {
			n = 0
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if v.Type().Elem().Kind() == reflect.Uint8 {
				v.Index(i).SetUint(uint64(i))
			} else {
				fill(r, v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": texts[r.IntN(len(texts))], "b": ""}))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(r, f, depth+1)
			}
		}
	}
}

// Append and Unmarshal do what encoding/json does: with values of every type, and with
// texts of which a part was changed.
func TestCodecDoesWhatEncodingJSONDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range codecTypes {
		for range 300 {
			value := reflect.New(typ)
			fill(r, value.Elem(), 0)
			want, err := json.Marshal(value.Interface())
			if err != nil {
				t.Fatal(typ, err)
			}
			for _, v := range []any{value.Interface(), value.Elem().Interface()} {
				if got, err := jsontext.Append([]byte("x"), v); err != nil || string(got) != "x"+string(want) {
					t.Fatalf("%s: %v\n%s", typ, err, cmp.Diff(string(want), string(got)))
				}
			}
			compareUnmarshal(t, typ, want)
			compareUnmarshal(t, typ, indent(t, want))
			for range 10 {
				compareUnmarshal(t, typ, mutate(r, want))
			}
		}
	}
}

func indent(t *testing.T, text []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "\t", "  "); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func mutate(r *rand.Rand, text []byte) []byte {
	parts := []string{"", " ", `"`, ",", ":", "}", "]", "null", "0", "1", "-", ".5", "e9", `\u00e4`, `\`, "\xff", "\x00", "true", `"unknown":[{"a":1}],`, `"unknown":[1 2],`, `"TEXT":"x",`, "99999999999999999999"}
	text = bytes.Clone(text)
	i := r.IntN(len(text))
	if i > 0 && text[i-1] != '{' && r.IntN(2) == 0 { // many mistakes are found at the borders of values
		if at := bytes.IndexAny(text[i:], `{,:[]}"`); at >= 0 {
			i += at
		}
	}
	j := min(i+r.IntN(3), len(text))
	return append(append(bytes.Clone(text[:i]), parts[r.IntN(len(parts))]...), text[j:]...)
}

func compareUnmarshal(t *testing.T, typ reflect.Type, text []byte) {
	t.Helper()
	want, got := reflect.New(typ), reflect.New(typ)
	wantErr, gotErr := json.Unmarshal(text, want.Interface()), jsontext.Unmarshal(text, got.Interface())
	if (wantErr == nil) != (gotErr == nil) || wantErr != nil && wantErr.Error() != gotErr.Error() {
		t.Fatalf("%s: %s\ngot  %v\nwant %v", typ, text, gotErr, wantErr)
	}
	if !reflect.DeepEqual(want.Interface(), got.Interface()) {
		t.Fatalf("%s: %s\ngot  %+v\nwant %+v", typ, text, got.Elem(), want.Elem())
	}
}

func TestUnmarshalKeepsWhatIsSet(t *testing.T) {
	got := belfry.Problem{Detail: "before"}
	if err := jsontext.Unmarshal([]byte(`{"title": "after"}`), &got); err != nil || got.Detail != "before" || got.Title != "after" {
		t.Errorf("%v: %+v", err, got)
	}
	if err := jsontext.Unmarshal([]byte(`{}`), nil); err == nil {
		t.Error("nil was decoded into")
	}
}

func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{"a": [1, -2.5e+3, true, null, "\u00e4\n"]}`, `[[[]]]`, `01`, `"\x"`, `{"a" 1}`, `[1,]`, ` "" `, `nul`, "\"\xff\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if jsontext.Check(text) == nil && !json.Valid(text) {
			t.Errorf("%q is taken for JSON", text)
		}
	})
}

// BenchmarkCodec is a reply with a thousand claimed runs.
//
//	go test -run '^$' -bench Codec ./internal/jsontext
func BenchmarkCodec(b *testing.B) {
	var reply belfry.ClaimReply
	now := time.Now().UTC().Truncate(time.Microsecond)
	for range 1000 {
		id := belfry.NewID(now)
		reply.Runs = append(reply.Runs, belfry.ClaimedRun{
			ID: id, JobID: id, Namespace: "default", Revision: 1, Kind: belfry.KindScheduled, Queue: "default", Handler: "send", ScheduledAt: now, ReadyAt: now, FiredAt: now, DeadlineAt: now,
			Attempt: 1, Token: belfry.NewToken(), IdempotencyKey: id.String() + ":1796088600", TimeoutSeconds: 60, Payload: []byte(`{"url":"http://127.0.0.1:12345/x","n":1}`),
		})
	}
	text, err := json.Marshal(reply)
	if err != nil {
		b.Fatal(err)
	}
	for name, encode := range map[string]func(any) ([]byte, error){
		"encode/json": json.Marshal,
		"encode/own":  func(v any) ([]byte, error) { return jsontext.Append(nil, v) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = encode(reply)
			}
		})
	}
	for name, decode := range map[string]func([]byte, any) error{"decode/json": json.Unmarshal, "decode/own": jsontext.Unmarshal} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var out belfry.ClaimReply
				_ = decode(text, &out)
			}
		})
	}
	for name, check := range map[string]func([]byte) bool{"check/json": json.Valid, "check/own": func(t []byte) bool { return jsontext.Check(t) == nil }} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_ = check(text)
			}
		})
	}
}
