package belfry

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestErrorText(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"a plain one", Errorf(NotFound, "find job %d", 7), "find job 7"},
		{"with its cause", Errorf(Unavailable, "find a job: %w", context.DeadlineExceeded), "find a job: context deadline exceeded"},
		{"with a fault", &Error{Code: Invalid, Message: "the job is not valid", Fields: []FieldError{{"name", "is missing"}}},
			"the job is not valid: name: is missing"},
		{"with several", &Error{Code: Invalid, Message: "the job is not valid", Fields: []FieldError{{"name", "is missing"}, {"queue", "is too long"}}},
			"the job is not valid: name: is missing; queue: is too long"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	conflict := Errorf(Conflict, "there already")
	for _, tt := range []struct {
		name string
		err  error
		want Code
	}{
		{"an error of ours", conflict, Conflict},
		{"wrapped", fmt.Errorf("create: %w", conflict), Conflict},
		{"joined with another", errors.Join(errors.New("x"), conflict), Conflict},
		{"the outermost counts", Errorf(Unavailable, "ask: %w", conflict), Unavailable},
		{"anybody else's", context.Canceled, Internal},
	} {
		if got := CodeOf(tt.err); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	err := Errorf(Unavailable, "claim runs: %w", fmt.Errorf("dial: %w", context.DeadlineExceeded))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error("the cause cannot be found")
	}
	if err.Message != "claim runs" {
		t.Errorf("the message for people is %q", err.Message)
	}
	if errors.Unwrap(Errorf(Internal, "no cause: %v", context.Canceled)) != nil {
		t.Error("there is a cause that was only printed")
	}
}
