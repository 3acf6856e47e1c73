package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// answer is what a handler gives back.
type answer struct {
	status   int
	location string // of what was made
	next     string // where a list goes on
	body     any    // nil: none
}

// route makes a handler of a function that reads a request and one that does what
// it asks for. Only the first knows HTTP.
func route[In any](a *api, read func(*http.Request) (In, error), do func(context.Context, In) (answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, err := read(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		out, err := do(ctx, in)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		a.send(w, r, out)
	})
}

// send writes an answer, whole or, if it cannot be encoded, not at all.
func (a *api) send(w http.ResponseWriter, r *http.Request, out answer) {
	if out.location != "" {
		w.Header().Set("Location", out.location)
	}
	if out.next != "" {
		w.Header().Set("Link", "<"+out.next+`>; rel="next"`)
	}
	if out.body == nil {
		w.WriteHeader(out.status)
		return
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(out.body); err != nil {
		a.fail(w, r, fmt.Errorf("encode the answer: %w", err))
		return
	}
	write(w, out.status, "application/json", text.Bytes())
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // A client that is gone cannot be told.
}
