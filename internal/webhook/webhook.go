// Package webhook signs requests and verifies signatures as Standard Webhooks 1.0 describes:
// HMAC-SHA256 over id, time and body, with a key that only sender and receiver know.
package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// KeyPrefix begins the text of a key. What follows is base64.
const KeyPrefix = "whsec_"

// The headers of a signed request.
const (
	IDHeader        = "Webhook-Id"
	TimestampHeader = "Webhook-Timestamp"
	SignatureHeader = "Webhook-Signature"
)

const version = "v1," // of the signatures, before each

// NewKey draws a key, as text.
func NewKey() string {
	var key [32]byte
	rand.Read(key[:])
	return KeyPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// ParseKey reads a key. Standard Webhooks wants 24 to 64 bytes. The error does not repeat it.
func ParseKey(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, KeyPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || strings.ContainsAny(encoded, "\r\n") || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("must be whsec_ and the base64 of 24 to 64 bytes")
	}
	return key, nil
}

// Sign sets the headers of a request with this body. There is a signature of each key: while a
// key is replaced, a receiver may know the old one or the new one.
func Sign(h http.Header, id string, at time.Time, body []byte, keys ...[]byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = version + base64.StdEncoding.EncodeToString(sum(key, id, timestamp, body))
	}
	h.Set(IDHeader, id)
	h.Set(TimestampHeader, timestamp)
	h.Set(SignatureHeader, strings.Join(signatures, " "))
}

// Verify says why a receiver with these keys should refuse a request; nil: it is valid. The
// request must not be older or newer than the tolerance.
func Verify(h http.Header, body []byte, now time.Time, tolerance time.Duration, keys ...[]byte) error {
	for _, name := range []string{IDHeader, TimestampHeader, SignatureHeader} {
		if values := h.Values(name); len(values) != 1 || values[0] == "" {
			return fmt.Errorf("the request has %d headers %s, not one", len(values), strings.ToLower(name))
		}
	}
	timestamp := h.Get(TimestampHeader)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errors.New("the header webhook-timestamp is not a number of seconds since 1970")
	}
	if !signedBy(keys, h.Get(IDHeader), timestamp, body, h.Get(SignatureHeader)) {
		return errors.New("no signature matches: the key is another one, or the id, the timestamp or the body was changed")
	}
	// Compared as times: far away seconds overflow a duration.
	switch at := time.Unix(seconds, 0); {
	case at.Before(now.Add(-tolerance)):
		return fmt.Errorf("the signature is right, but the request was signed at %s, more than %s ago", at.UTC().Format(time.RFC3339), tolerance)
	case at.After(now.Add(tolerance)):
		return fmt.Errorf("the signature is right, but the request was signed at %s, more than %s from now; compare the clocks", at.UTC().Format(time.RFC3339), tolerance)
	}
	return nil
}

func signedBy(keys [][]byte, id, timestamp string, body []byte, signatures string) bool {
	for _, key := range keys {
		want := sum(key, id, timestamp, body)
		for text := range strings.SplitSeq(signatures, " ") {
			encoded, ok := strings.CutPrefix(text, version)
			got, err := base64.StdEncoding.Strict().DecodeString(encoded)
			if ok && err == nil && !strings.ContainsAny(encoded, "\r\n") && hmac.Equal(got, want) {
				return true
			}
		}
	}
	return false
}

func sum(key []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return mac.Sum(nil)
}
