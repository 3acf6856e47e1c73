package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// HandleJSON registers a function as a handler that receives the payload as a T. A
// payload that does not decode fails the attempt with an error that names the field, and
// the function is not called. It panics like Mux.Handle.
func HandleJSON[T any](m *Mux, name string, fn func(ctx context.Context, run *belfry.Run, in T) error) {
	if fn == nil {
		panic("worker: a handler needs a name and must not be nil")
	}
	m.HandleFunc(name, func(ctx context.Context, run *belfry.Run) error {
		in, err := Payload[T](run)
		if err != nil {
			return err
		}
		return fn(ctx, run, in)
	})
}

// Payload decodes the payload of a run as a T, as json.Unmarshal does: fields that T does
// not have are ignored. An error is Invalid and names the field, such as
// "payload.lines[2].price". A run without payload is an error too, unless T can be nil.
func Payload[T any](run *belfry.Run) (T, error) {
	var in T
	raw := run.Payload
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("null")
	}
	if string(bytes.TrimSpace(raw)) == "null" && !acceptsNull(reflect.TypeFor[T]()) {
		return in, payloadError(belfry.FieldError{Field: "payload", Message: "is missing"})
	}
	err := json.Unmarshal(raw, &in)
	if err == nil {
		return in, nil
	}
	path, cause := findInvalidField(raw, reflect.TypeFor[T](), "payload", err, 0)
	var zero T // not what was decoded before the error
	return zero, payloadError(belfry.FieldError{Field: path, Message: describeMismatch(cause)})
}

func payloadError(f belfry.FieldError) *belfry.Error {
	return &belfry.Error{Code: belfry.Invalid, Message: "the payload is not what the handler reads", Fields: []belfry.FieldError{f}}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func acceptsNull(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	default:
		return reflect.PointerTo(t).Implements(unmarshaler)
	}
}

// maxFieldDepth is how deep findInvalidField searches.
const maxFieldDepth = 32

// findInvalidField returns the path of the innermost value that does not decode, given
// that the whole does not, and its error. It decodes the parts one by one.
func findInvalidField(raw json.RawMessage, t reflect.Type, path string, err error, depth int) (string, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if depth >= maxFieldDepth || reflect.PointerTo(t).Implements(unmarshaler) {
		return path, err
	}
	switch t.Kind() {
	case reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return path, err
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			alone, _ := json.Marshal(map[string]json.RawMessage{name: members[name]})
			fieldErr := json.Unmarshal(alone, reflect.New(t).Interface())
			if fieldErr == nil {
				continue
			}
			inner := path + "." + sanitize.Text(name, 64)
			if field, plain := fieldOf(t, name); plain {
				return findInvalidField(members[name], field, inner, fieldErr, depth+1)
			}
			return inner, fieldErr
		}
	case reflect.Slice, reflect.Array:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return path, err
		}
		for i, item := range items {
			if fieldErr := json.Unmarshal(item, reflect.New(t.Elem()).Interface()); fieldErr != nil {
				return findInvalidField(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), fieldErr, depth+1)
			}
		}
	case reflect.Map:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return path, err
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if fieldErr := json.Unmarshal(members[name], reflect.New(t.Elem()).Interface()); fieldErr != nil {
				return findInvalidField(members[name], t.Elem(), path+"."+sanitize.Text(name, 64), fieldErr, depth+1)
			}
		}
	}
	return path, err
}

// fieldOf returns the type of the field of a name. It is not plain if the field is not
// decoded as a value of that type would be.
func fieldOf(t reflect.Type, member string) (field reflect.Type, plain bool) {
	for _, f := range reflect.VisibleFields(t) {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		if f.IsExported() && strings.EqualFold(name, member) {
			return f.Type, !strings.Contains(rest, "string")
		}
	}
	return nil, false
}

// describeMismatch says what is wrong with a value, in words that follow its name.
func describeMismatch(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		given, _, _ := strings.Cut(kind.Value, " ") // "number 12.5": not the value itself
		return fmt.Sprintf("is %s, want %s", withArticle(given), jsonTypeName(kind.Type))
	case errors.As(err, &syntax):
		return "is not JSON"
	default:
		return sanitize.Text(err.Error(), 200)
	}
}

// jsonTypeName is what a Go type is in JSON.
func jsonTypeName(t reflect.Type) string {
	switch k := t.Kind(); {
	case k >= reflect.Int && k <= reflect.Uintptr:
		return "a whole number that fits in " + k.String()
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.Struct || k == reflect.Map:
		return "an object"
	case k == reflect.Slice || k == reflect.Array:
		return "an array"
	default:
		return withArticle(k.String())
	}
}

func withArticle(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}
