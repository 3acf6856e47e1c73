package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// pageQuery is the parameters of every list.
type pageQuery struct {
	Limit  int    `json:"limit,omitempty" min:"1" max:"500" implicit:"50" doc:"How many items a page has."`
	Cursor string `json:"cursor,omitempty" doc:"Start of the page: taken from the 'Link' header of the page before."`
}

// defaultPageSize is the implicit limit.
const defaultPageSize = 50

var (
	pageQueryType = reflect.TypeFor[pageQuery]()
	pageQueries   = []reflect.Type{pageQueryType}
)

// cursor is a position in a list, of the last item of a page. Clients return it
// unchanged.
type cursor struct {
	Version byte
	Scope   cursorScope
	At      int64 // in microseconds
	ID      belfry.ID
}

const cursorVersion = 2

var (
	errCursor        = errors.New("is not a cursor of this list; take it from the answer before")
	errCursorVersion = errors.New("is a cursor of another version of the server; start the list again")
	errCursorScope   = errors.New("belongs to another list or filter; repeat the request of the page before, or start again without a cursor")
)

// cursorScope is a digest of the list and filter that a cursor belongs to.
type cursorScope [8]byte

func newCursorScope(path, namespace string, filter url.Values) (s cursorScope) {
	filter = maps.Clone(filter)
	delete(filter, "cursor")
	delete(filter, "limit")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q\n%q\n%q", path, namespace, filter.Encode()))
	copy(s[:], sum[:])
	return s
}

func (s cursorScope) encode(p store.Position) string {
	raw, _ := binary.Append(nil, binary.BigEndian, cursor{cursorVersion, s, p.At.UnixMicro(), p.ID}) // its size is fixed
	return base64.RawURLEncoding.EncodeToString(raw)
}

func (s cursorScope) decode(text string) (p store.Position, err error) {
	if text == "" {
		return p, nil
	}
	var c cursor
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	size, short := binary.Decode(raw, binary.BigEndian, &c)
	switch {
	case err != nil || short != nil || size != len(raw) || strings.ContainsAny(text, "\r\n"): // decoding would skip those
		return p, errCursor
	case c.Version != cursorVersion:
		return p, errCursorVersion
	case c.Scope != s:
		return p, errCursorScope
	}
	return store.Position{At: time.UnixMicro(c.At).UTC(), ID: c.ID}, nil
}

// nextPage is the address of the page after a position; empty if that is zero.
func (in *request) nextPage(last store.Position) string {
	if last == (store.Position{}) {
		return ""
	}
	next := maps.Clone(in.query)
	next.Set("cursor", in.cursor.encode(last))
	return in.path + "?" + next.Encode()
}
