package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// Handler does the work of a run. A nil error is success; after any other the run is
// retried by the retry policy of the job. These errors, also wrapped in others, do
// something else:
//
//   - belfry.Snooze(d) returns the run for d, at most 7 days, and is no failure.
//   - belfry.RetryAfter(err, d) is a failure that is retried after d, at most 7 days,
//     instead of the delay of the policy.
//   - belfry.Permanent(err) is a failure that retries cannot fix: the run becomes a dead
//     letter at once.
//
// The context ends when the attempt must, and context.Cause returns why: ErrTimedOut,
// ErrInterrupted when the worker shuts down, which costs the run no retry, ErrCancelled
// when the run was cancelled, and ErrLeaseLost when another worker may hold the run.
// After that the error itself is ignored; nil is still success, unless the lease was
// lost. A handler that does not return within 5 seconds is abandoned, and its slot stays
// taken until it returns.
//
// A handler reports output and HTTP status in run.Report. It must not use the run after
// it returned.
type Handler interface {
	Handle(ctx context.Context, run *belfry.Run) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, run *belfry.Run) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, run *belfry.Run) error { return f(ctx, run) }

// Mux finds the handler of a run by its name. It may be used by several goroutines.
type Mux struct {
	mu       sync.RWMutex // guards handlers
	handlers map[string]Handler
}

// NewMux makes a Mux without handlers.
func NewMux() *Mux { return &Mux{handlers: make(map[string]Handler)} }

// Handle registers a handler by its name. Like that of net/http it panics on an empty
// name, a nil handler or a name that is taken.
func (m *Mux) Handle(name string, h Handler) {
	if f, ok := h.(HandlerFunc); name == "" || h == nil || ok && f == nil {
		panic("worker: a handler needs a name and must not be nil")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.handlers[name]; taken {
		panic(fmt.Sprintf("worker: handler %q is registered twice", name))
	}
	m.handlers[name] = h
}

// HandleFunc registers a function as a handler.
func (m *Mux) HandleFunc(name string, fn func(ctx context.Context, run *belfry.Run) error) {
	m.Handle(name, HandlerFunc(fn))
}

// Handlers lists the registered names, sorted.
func (m *Mux) Handlers() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.handlers))
}

// Dispatch calls the handler of the run. HandlerFunc(m.Dispatch) makes a Mux a Handler.
func (m *Mux) Dispatch(ctx context.Context, run *belfry.Run) error {
	m.mu.RLock()
	name := run.Spec.HandlerName()
	h := m.handlers[name]
	m.mu.RUnlock()
	if h == nil {
		return fmt.Errorf("this worker has no handler named %q", name)
	}
	return h.Handle(ctx, run)
}

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
	invalid := belfry.FieldError{Field: "payload", Message: "is missing"}
	if string(bytes.TrimSpace(raw)) != "null" || acceptsNull(reflect.TypeFor[T]()) {
		err := json.Unmarshal(raw, &in)
		if err == nil {
			return in, nil
		}
		path, cause := findInvalidField(raw, reflect.TypeFor[T](), "payload", err, 0)
		invalid = belfry.FieldError{Field: path, Message: describeMismatch(cause)}
	}
	var zero T // not what was decoded before the error
	return zero, &belfry.Error{Code: belfry.Invalid, Message: "the payload is not what the handler reads", Fields: []belfry.FieldError{invalid}}
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
	case reflect.Struct, reflect.Map:
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // without an object there are none
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
		_ = json.Unmarshal(raw, &items) // without an array there are none
		for i, item := range items {
			if fieldErr := json.Unmarshal(item, reflect.New(t.Elem()).Interface()); fieldErr != nil {
				return findInvalidField(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), fieldErr, depth+1)
			}
		}
	}
	return path, err
}

// fieldOf returns the type of the field of a name, which a map has for any. It is not
// plain if the field is not decoded as a value of that type would be.
func fieldOf(t reflect.Type, member string) (field reflect.Type, plain bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	for _, f := range reflect.VisibleFields(t) {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && strings.EqualFold(cmp.Or(name, f.Name), member) {
			return f.Type, !strings.Contains(rest, "string")
		}
	}
	return nil, false
}

// describeMismatch says what is wrong with a value, in words that follow its name.
func describeMismatch(err error) string {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		given, _, _ := strings.Cut(kind.Value, " ") // "number 12.5": not the value itself
		return fmt.Sprintf("is %s, want %s", withArticle(given), jsonTypeName(kind.Type))
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return "is not JSON"
	}
	return sanitize.Text(err.Error(), 200)
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
