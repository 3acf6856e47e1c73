package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// readyWithin bounds the question whether a node is ready.
const readyWithin = 3 * time.Second

// livez answers as long as the process can answer at all.
func (a *api) livez(w http.ResponseWriter, r *http.Request) {
	write(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
}

// readyz says whether requests and runs should be sent here, and if not, why.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	if a.ready != nil {
		if err := a.ready(ctx); err != nil {
			a.fail(w, r, unready(err))
			return
		}
	}
	write(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
}

// unready says of a failure only what was meant for people.
func unready(err error) error {
	detail := "the database cannot be reached"
	var known *belfry.Error
	if errors.As(err, &known) && known.Code != belfry.Internal {
		detail = known.Message
	}
	told := &refusal{
		status: http.StatusServiceUnavailable,
		code:   belfry.Unavailable,
		detail: detail,
		header: map[string]string{"Retry-After": "5"},
	}
	return fmt.Errorf("%w: %w", told, err)
}

// directory says what there is.
type directory struct {
	Name  string   `json:"name"`
	Paths []string `json:"paths"`
}

func readNothing(r *http.Request) (struct{}, error) {
	_, err := parameters(r)
	return struct{}{}, err
}

func (a *api) index(context.Context, struct{}) (answer, error) {
	paths := make([]string, len(a.served))
	for i, op := range a.served {
		paths[i] = op.method + " " + strings.TrimSuffix(op.path, "{$}")
	}
	return answer{status: http.StatusOK, body: directory{"belfry", paths}}, nil
}
