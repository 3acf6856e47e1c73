package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// description is the document of the API, and the page made of it, as they are
// sent. Both are made once.
type description struct {
	openapi page
	html    page
	policy  string // what a browser may load for the page
}

// page is a text with the tag of its content.
type page struct {
	text []byte
	tag  string
}

func newPage(text []byte) page {
	sum := sha256.Sum256(text)
	return page{text, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

// newDescription describes a list of operations.
func newDescription(operations []operation, of traits) (*description, error) {
	d := describe(operations, of)
	if len(d.schemas.faults) > 0 {
		return nil, fmt.Errorf("describe the API: %s", strings.Join(d.schemas.faults, "; "))
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	html, err := render(d)
	if err != nil {
		return nil, fmt.Errorf("write the reference of the API: %w", err)
	}
	return &description{openapi: newPage(text.Bytes()), html: newPage(html), policy: pagePolicy(html)}, nil
}

// pagePolicy lets a browser use the style in the page, and nothing else at all.
func pagePolicy(html []byte) string {
	_, rest, _ := bytes.Cut(html, []byte("<style>"))
	style, _, _ := bytes.Cut(rest, []byte("</style>"))
	sum := sha256.Sum256(style)
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// openapi serves the document.
func (a *api) openapi(w http.ResponseWriter, r *http.Request) {
	a.description.openapi.serve(w, r, mediaJSON)
}

// reference serves the page.
func (a *api) reference(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", a.description.policy)
	w.Header().Set("Referrer-Policy", "no-referrer")
	a.description.html.serve(w, r, "text/html; charset=utf-8")
}

// serve sends a page, unless the client has it already.
func (p page) serve(w http.ResponseWriter, r *http.Request, media string) {
	w.Header().Set("ETag", p.tag)
	w.Header().Set("Cache-Control", "no-cache") // It may be kept, and is to be asked for again.
	for known := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if known = strings.TrimPrefix(strings.TrimSpace(known), "W/"); known == p.tag || known == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	write(w, http.StatusOK, media, p.text)
}
