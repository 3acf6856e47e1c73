package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// A cursor says where a list goes on: a byte for its form, a digest of the list and
// its filter, then the keys of the last item that was looked at. Clients hand it
// back as they got it.
const (
	jobCursor      byte = 0x12 // an id
	jobRunCursor   byte = 0x22 // microseconds and an id
	runCursor      byte = 0x31 // an id
	revisionCursor byte = 0x41 // a number
	deadCursor     byte = 0x51 // microseconds and an id
	eventCursor    byte = 0x61 // an id
	actionCursor   byte = 0x71 // an id
)

const digestSize = 8

var (
	errCursor    = errors.New("is not a cursor of this list; take it from the Link header of the page before")
	errOldCursor = errors.New("is a cursor of another version of the server; begin the list anew")
	errOffCursor = errors.New("belongs to another list or filter; repeat those of the page before, or begin anew")
)

// list is what a cursor belongs to: a list, by the path at which it is, in a
// namespace, with a filter.
type list struct {
	form      byte
	path      string
	namespace string
	filter    string // in a form of its own, the same for equal filters
}

func (l list) digest() []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%q\n%q\n%q", l.form, l.path, l.namespace, l.filter)
	return h.Sum(nil)[:digestSize]
}

// cursor encodes the place behind a key.
func (l list) cursor(key []byte) string {
	raw := append([]byte{l.form}, l.digest()...)
	return base64.RawURLEncoding.EncodeToString(append(raw, key...))
}

// key decodes a cursor of this list whose key has a length.
func (l list) key(cursor string, length int) ([]byte, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	switch {
	case err != nil || len(raw) == 0 || strings.ContainsAny(cursor, "\r\n"): // Decoding would skip those.
		return nil, errCursor
	case raw[0] == l.form && len(raw) == 1+digestSize+length:
		if !bytes.Equal(raw[1:1+digestSize], l.digest()) {
			return nil, errOffCursor
		}
		return raw[1+digestSize:], nil
	case raw[0]&0xf0 == l.form&0xf0 && raw[0] != l.form:
		return nil, errOldCursor
	}
	return nil, errCursor
}

// after encodes a place in a list ordered by ids.
func (l list) after(id belfry.ID) string { return l.cursor(id[:]) }

func (l list) readAfter(cursor string, page *control.Page) error {
	key, err := l.key(cursor, len(page.After))
	copy(page.After[:], key)
	return err
}

// before encodes a place in a list of the runs of a job.
func (l list) before(last belfry.Run) string { return l.beforeAt(last.ScheduledAt, last.ID) }

// beforeAt encodes a place in a list ordered by instants, and by ids where those are
// equal.
func (l list) beforeAt(at time.Time, id belfry.ID) string {
	key := binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))
	return l.cursor(append(key, id[:]...))
}

func (l list) readBefore(cursor string, page *control.RunPage) error {
	key, err := l.key(cursor, 8+len(page.BeforeID))
	if err == nil {
		page.BeforeAt = time.UnixMicro(int64(binary.BigEndian.Uint64(key))).UTC()
		copy(page.BeforeID[:], key[8:])
	}
	return err
}

// below encodes a place in a list ordered by numbers.
func (l list) below(number int) string {
	return l.cursor(binary.BigEndian.AppendUint64(nil, uint64(number)))
}

func (l list) readBelow(cursor string, before *int) error {
	key, err := l.key(cursor, 8)
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint64(key)
	if n == 0 || n > 1<<31 {
		return errCursor
	}
	*before = int(n)
	return nil
}
