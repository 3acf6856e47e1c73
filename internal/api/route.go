package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// answer is what a handler gives back.
type answer struct {
	status   int
	location string // of what was made
	next     string // where a list goes on
	etag     string // version of the job that is shown
	last     bool   // the connection is not to be used again
	body     any    // nil: none; a streamed one writes itself
}

// streamed is a body that is too large to be put together first.
type streamed interface {
	length() int64
	writeTo(w io.Writer) error
}

// patience bounds what a request may wait for, well within the server's
// WriteTimeout.
const patience = 20 * time.Second

// route makes a handler of a function that reads a request and one that does what
// it asks for. Only the first knows HTTP.
func route[In any](a *api, read func(*http.Request) (In, error), do func(context.Context, In) (answer, error)) http.Handler {
	return within(a, patience, read, do)
}

// within is route for what may take so long.
func within[In any](a *api, long time.Duration, read func(*http.Request) (In, error), do func(context.Context, In) (answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, err := read(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		if long > patience {
			extend(w, long+patience)
		}
		ctx, cancel := context.WithTimeout(r.Context(), long)
		defer cancel()
		out, err := do(ctx, in)
		a.reply(w, r, out, err)
	})
}

// reply writes an answer, or the problem document of an error.
func (a *api) reply(w http.ResponseWriter, r *http.Request, out answer, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.send(w, r, out)
}

// send writes an answer, whole or, if it cannot be encoded, not at all.
func (a *api) send(w http.ResponseWriter, r *http.Request, out answer) {
	var text bytes.Buffer
	large, stream := out.body.(streamed)
	if out.body != nil && !stream {
		if err := json.NewEncoder(&text).Encode(out.body); err != nil {
			a.fail(w, r, fmt.Errorf("encode the answer: %w", err))
			return
		}
	}
	h := w.Header()
	if out.location != "" {
		h.Set("Location", out.location)
	}
	if out.next != "" {
		h.Set("Link", "<"+out.next+`>; rel="next"`)
	}
	if out.etag != "" {
		h.Set("ETag", `"`+out.etag+`"`)
	}
	if out.last {
		h.Set("Connection", "close")
	}
	switch {
	case stream:
		h.Set("Content-Type", mediaJSON)
		h.Set("Content-Length", strconv.FormatInt(large.length(), 10))
		w.WriteHeader(out.status)
		if err := large.writeTo(w); err != nil {
			panic(http.ErrAbortHandler) // The client is gone, or must not take half for all.
		}
	case out.body == nil:
		w.WriteHeader(out.status)
	default:
		write(w, out.status, mediaJSON, text.Bytes())
	}
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // A client that is gone cannot be told.
}
