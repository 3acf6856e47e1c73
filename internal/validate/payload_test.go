package validate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/target"
)

func TestPayloadOverride(t *testing.T) {
	for _, tt := range []struct {
		name, kind, own, override string
		want                      string
		field, words              string
	}{
		{"a worker gets all of it", "worker", `{"a":1}`, ` [1, "<&>"] `, `[1,"<&>"]`, "", ""},
		{"a worker gets nothing", "worker", `{"a":1}`, `null`, `null`, "", ""},
		{"a worker gets its secrets", "worker", `{"token":"abc"}`, `{"token":"***","b":2}`, `{"token":"abc","b":2}`, "", ""},
		{"a worker gets no masks", "worker", `{}`, `{"token":"***"}`, ``, "payload.token", "masked"},
		{"a request gets a body", "http", `{"url":"https://example.com","body":{"a":1}}`, `{"b":"<&>"}`, `{"body":{"b":"<&>"},"url":"https://example.com"}`, "", ""},
		{"a request never gets another address", "http", `{"url":"https://example.com"}`, `{"url":"https://evil.example"}`,
			`{"body":{"url":"https://evil.example"},"url":"https://example.com"}`, "", ""},
		{"a request gets its secrets", "http", `{"url":"https://example.com","body":{"token":"abc"}}`, `{"token":"***"}`, `{"body":{"token":"abc"},"url":"https://example.com"}`, "", ""},
		{"a request keeps its headers", "http", `{"url":"https://example.com","headers":{"Authorization":"abc"},"method":"PUT"}`, `3`,
			`{"body":3,"headers":{"Authorization":"abc"},"method":"PUT","url":"https://example.com"}`, "", ""},
		{"a request gets no body", "http", `{"url":"https://example.com","body":3}`, `null`, `{"body":null,"url":"https://example.com"}`, "", ""},
		{"a request without a body", "http", `{"url":"https://example.com","method":"get"}`, `3`, ``, "payload", "GET"},
		{"not JSON", "worker", `{}`, `{`, ``, "payload", "JSON"},
		{"too large", "worker", `{}`, `"` + strings.Repeat("x", belfry.MaxPayload) + `"`, ``, "payload", "262146"},
		{"too large with the rest", "http", `{"url":"https://example.com"}`, `"` + strings.Repeat("x", belfry.MaxPayload-10) + `"`, ``, "payload", "together"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := belfry.Job{Manifest: belfry.Manifest{Spec: belfry.Spec{Type: tt.kind}, Payload: json.RawMessage(tt.own)}}
			got, errors := Payload(job, json.RawMessage(tt.override))
			if tt.field != "" {
				oneError(t, errors, tt.field, tt.words)
				return
			}
			if len(errors) > 0 || string(got) != tt.want {
				t.Errorf("got %s, errors %v", got, errors)
			}
			if tt.kind == "http" {
				if _, errors := target.ParseHTTP(got); len(errors) > 0 {
					t.Errorf("it cannot be sent: %v", errors)
				}
			}
		})
	}
}
