package api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// A cursor says where a list goes on: a byte for its form, then the keys of the
// last item that was shown. Clients hand it back as they got it.
const (
	jobCursor byte = 0x11 // an id
	runCursor byte = 0x21 // microseconds and an id
)

var errCursor = errors.New("is not a cursor of this list; take it from the Link header of the page before")

func jobsAfter(last belfry.Job) string {
	return encodeCursor(jobCursor, last.ID[:])
}

func runsAfter(last belfry.Run) string {
	key := binary.BigEndian.AppendUint64(nil, uint64(last.ScheduledAt.UnixMicro()))
	return encodeCursor(runCursor, append(key, last.ID[:]...))
}

func readJobCursor(text string, page *control.Page) error {
	key, err := decodeCursor(jobCursor, text, len(page.After))
	if err == nil {
		copy(page.After[:], key)
	}
	return err
}

func readRunCursor(text string, page *control.RunPage) error {
	key, err := decodeCursor(runCursor, text, 8+len(page.BeforeID))
	if err == nil {
		page.BeforeAt = time.UnixMicro(int64(binary.BigEndian.Uint64(key))).UTC()
		copy(page.BeforeID[:], key[8:])
	}
	return err
}

func encodeCursor(form byte, key []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{form}, key...))
}

// decodeCursor gives the key of a cursor of the given form and length.
func decodeCursor(form byte, text string, length int) ([]byte, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 1+length || raw[0] != form {
		return nil, errCursor
	}
	return raw[1:], nil
}
