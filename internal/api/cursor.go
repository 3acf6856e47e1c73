package api

import (
	"bytes"
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

// A cursor is a position in a list: a version byte, a digest of the list and its
// filter, then the instant and the id of the last item. Clients return it unchanged.
const (
	cursorVersion = 2
	digestSize    = 8
)

var (
	errCursor        = errors.New("is not a cursor of this list; take it from the answer before")
	errCursorVersion = errors.New("is a cursor of another version of the server; start the list again")
	errCursorScope   = errors.New("belongs to another list or filter; repeat the request of the page before, or start again without a cursor")
)

// cursorScope is the list and filter that a cursor belongs to.
type cursorScope [digestSize]byte

func newCursorScope(path, namespace string, filter url.Values) (s cursorScope) {
	filter = maps.Clone(filter)
	delete(filter, "cursor")
	delete(filter, "limit")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q\n%q\n%q", path, namespace, filter.Encode()))
	copy(s[:], sum[:])
	return s
}

func (s cursorScope) encode(p store.Position) string {
	raw := append([]byte{cursorVersion}, s[:]...)
	raw = binary.BigEndian.AppendUint64(raw, uint64(p.At.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(raw, p.ID[:]...))
}

func (s cursorScope) decode(cursor string) (p store.Position, err error) {
	if cursor == "" {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	switch {
	case err != nil || len(raw) != 1+digestSize+8+len(belfry.ID{}) || strings.ContainsAny(cursor, "\r\n"): // decoding would skip those
		return p, errCursor
	case raw[0] != cursorVersion:
		return p, errCursorVersion
	case !bytes.Equal(raw[1:1+digestSize], s[:]):
		return p, errCursorScope
	}
	p.At = time.UnixMicro(int64(binary.BigEndian.Uint64(raw[1+digestSize:]))).UTC()
	copy(p.ID[:], raw[1+digestSize+8:])
	return p, nil
}

// nextPage is the address of the page after a position; empty if that is zero.
func (in *request) nextPage(last store.Position) string {
	if last == (store.Position{}) {
		return ""
	}
	next := maps.Clone(in.query)
	if next == nil {
		next = url.Values{}
	}
	next.Set("cursor", in.cursor.encode(last))
	return in.path + "?" + next.Encode()
}
