package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
)

// maxBody is how many bytes the body of a request may have, unless its operation
// says otherwise.
const maxBody = 1 << 20

// readBody takes the body of a request, at most maxBody bytes, that says it is
// JSON or says nothing.
func readBody(r *http.Request) ([]byte, error) { return readBodyOf(r, maxBody) }

func readBodyOf(r *http.Request, most int64) ([]byte, error) {
	if _, err := checkMedia(r.Header, mediaJSON); err != nil {
		return nil, err
	}
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	if err != nil {
		return nil, unread(err)
	}
	if int64(len(body)) > most {
		return nil, tooLarge(most)
	}
	return body, nil
}

func tooLarge(most int64) error {
	return belfry.Errorf(belfry.TooLarge, "the body is too large, the most is %d bytes", most)
}

// unread tells why a body was not read to its end.
func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &refusal{
			status: http.StatusRequestTimeout,
			code:   tooSlow,
			detail: "the body came too slowly",
			header: map[string]string{"Connection": "close"},
		}
	}
	return refuse("the body could not be read to its end")
}

// checkMedia gives the media type of a body, which must be one of those that are
// possible, in UTF-8 and not compressed. It is empty if the request does not say.
func checkMedia(h http.Header, possible ...string) (string, error) {
	e := &refusal{status: http.StatusUnsupportedMediaType, code: unsupportedMedia}
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		e.detail = "the body must not be compressed"
		return "", e
	}
	given := h.Get("Content-Type")
	if given == "" {
		return "", nil
	}
	media, parameters, err := mime.ParseMediaType(given)
	charset, named := parameters["charset"]
	if err != nil || !slices.Contains(possible, media) || named && !strings.EqualFold(charset, "utf-8") {
		e.detail = "the body must be " + strings.Join(possible, " or ") + " in UTF-8"
		return "", e
	}
	return media, nil
}

// clip shortens a name that an answer repeats.
func clip(name string) string {
	const most = 64
	if utf8.RuneCountInString(name) <= most {
		return name
	}
	return string([]rune(name)[:most]) + "..."
}
