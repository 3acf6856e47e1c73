package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestMuxDispatch(t *testing.T) {
	mux := NewMux()
	mux.HandleFunc("b", func(context.Context, *belfry.Run) error { return errors.New("from b") })
	mux.Handle("a", HandlerFunc(func(context.Context, *belfry.Run) error { return errors.New("from a") }))
	if got := mux.Handlers(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("handlers are %q, want a and b in order", got)
	}
	for kind, want := range map[string]string{"a": "from a", "b": "from b", "c": `no handler named "c"`} {
		run := &belfry.Run{Spec: belfry.Spec{Type: kind}}
		if err := HandlerFunc(mux.Dispatch).Handle(t.Context(), run); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a run of type %s gave %v, want %q", kind, err, want)
		}
	}
}

func TestMuxPanicsOnInvalidHandlers(t *testing.T) {
	fn := func(context.Context, *belfry.Run) error { return nil }
	for name, register := range map[string]func(*Mux){
		"an empty name":        func(m *Mux) { m.HandleFunc("", fn) },
		"a nil handler":        func(m *Mux) { m.Handle("a", nil) },
		"a nil function":       func(m *Mux) { m.HandleFunc("a", nil) },
		"no function for JSON": func(m *Mux) { HandleJSON[int](m, "a", nil) },
		"a taken name":         func(m *Mux) { m.HandleFunc("a", fn); m.HandleFunc("a", fn) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was accepted")
				}
			}()
			register(NewMux())
		})
	}
}
