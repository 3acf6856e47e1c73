package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// secretMap has secrets by namespace/name.
type secretMap map[string][]string

func (m secretMap) Secret(_ context.Context, namespace, name string) ([]string, error) {
	if values, ok := m[namespace+"/"+name]; ok {
		return values, nil
	}
	return nil, belfry.Errorf(belfry.NotFound, "there is no secret %q", name)
}

func namespaces(list ...belfry.Namespace) func(context.Context) ([]belfry.Namespace, error) {
	return func(context.Context) ([]belfry.Namespace, error) { return list, nil }
}

func TestRequestsAreSignedWithTheSecretOfTheJobOrNamespace(t *testing.T) {
	older, newer, other := webhook.NewKey(), webhook.NewKey(), webhook.NewKey()
	keys := &SigningKeys{
		Secrets: secretMap{"billing/hooks": {newer, older}, "billing/own": {other}, "ops/hooks": {other}, "billing/plain": {"canary-value"}},
		Namespaces: namespaces(belfry.Namespace{Name: "billing", SignWith: "hooks"}, belfry.Namespace{Name: "ops"},
			belfry.Namespace{Name: "wrong", SignWith: "hooks"}),
	}
	var calls atomic.Int32
	var header http.Header
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	h := handler(t, HTTPOptions{Guard: NewGuard(false, prefixes("127.0.0.0/8")), SigningKeys: keys.Find})
	for _, tt := range []struct {
		namespace, more string
		signedWith      []string
		want            string // of the error
	}{
		{"billing", `,"body":{"b": 1,  "a":"ü"}`, []string{newer, older}, ""},
		{"billing", `,"body":"a.b\u0000\n"`, []string{newer, older}, ""},
		{"billing", `,"method":"GET"`, []string{newer, older}, ""},
		{"billing", `,"headers":{"webhook-id":"forged","Webhook-Signature":"v1,forged"}`, []string{newer, older}, ""},
		{"billing", `,"body":1,"sign_with":"own"`, []string{other}, ""},
		{"ops", `,"body":1`, nil, ""},
		{"unknown", `,"body":1`, nil, ""},
		{"ops", `,"sign_with":"hooks"`, []string{other}, ""},
		{"ops", `,"sign_with":"own"`, nil, `sign the request, which was not sent: the namespace ops has no secret "own"`},
		{"wrong", ``, nil, `the namespace wrong has no secret "hooks"`},
		{"billing", `,"sign_with":"plain"`, nil, `the secret "plain" is no signing key: it must be whsec_`},
	} {
		name := tt.namespace + tt.more
		run := &belfry.Run{ID: belfry.NewID(time.Now()), JobID: belfry.NewID(time.Now()), Namespace: tt.namespace, Attempt: 1,
			Payload: json.RawMessage(fmt.Sprintf(`{"url":%q%s}`, server.URL, tt.more))}
		before := calls.Load()
		for ; run.Attempt <= 2; run.Attempt++ {
			err := h.Handle(t.Context(), run)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") || calls.Load() != before {
					t.Errorf("%s: %v, %d requests", name, err, calls.Load()-before)
				}
				var result belfry.Result
				if result.ApplyError(err); result.Permanent {
					t.Errorf("%s: the secret may be there at the next attempt", name)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if tt.signedWith == nil {
				if header.Get("Webhook-Id")+header.Get("Webhook-Signature") != "" {
					t.Errorf("%s: it is signed: %v", name, header)
				}
				continue
			}
			if got := header.Get("Webhook-Id"); got != run.ID.String() {
				t.Errorf("%s: the id is %q in attempt %d, want that of the run", name, got, run.Attempt)
			}
			for _, text := range tt.signedWith {
				official, err := standardwebhooks.NewWebhook(text)
				if err != nil {
					t.Fatal(err)
				}
				if err := official.Verify(body, header); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if got := len(strings.Fields(header.Get("Webhook-Signature"))); got != len(tt.signedWith) {
				t.Errorf("%s: there are %d signatures", name, got)
			}
		}
	}
	if err := localHTTP(t).Handle(t.Context(), &belfry.Run{Payload: json.RawMessage(fmt.Sprintf(`{"url":%q,"sign_with":"x"}`, server.URL))}); err == nil || !strings.Contains(err.Error(), "no secrets") {
		t.Errorf("a worker without secrets: %v", err)
	}
}

func TestHeadersOfASignatureBelongToBelfry(t *testing.T) {
	_, invalid := ParseHTTP(json.RawMessage(`{"url":"https://a","headers":{"WEBHOOK-ID":"x"},"sign_with":"hooks"}`))
	if len(invalid) != 1 || invalid[0].Field != "payload.headers.WEBHOOK-ID" {
		t.Errorf("got %v", invalid)
	}
	if _, invalid := ParseHTTP(json.RawMessage(`{"url":"https://a","headers":{"webhook-id":"x"}}`)); invalid != nil {
		t.Errorf("without a secret: %v", invalid)
	}
}

// A namespace that wants signatures gets no unsigned request because the database is away.
func TestDefaultSecretWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []belfry.Namespace
		var failure error
		reads := 0
		keys := &SigningKeys{Secrets: secretMap{"billing/hooks": {webhook.NewKey()}}, Namespaces: func(context.Context) ([]belfry.Namespace, error) {
			reads++
			return list, failure
		}}
		signs := func() (bool, error) {
			found, err := keys.Find(t.Context(), "billing", "")
			return len(found) > 0, err
		}
		failure = errors.New("the database is away")
		for range 100 {
			if _, err := signs(); !errors.Is(err, failure) {
				t.Fatalf("before anything was read: %v", err)
			}
		}
		if reads != 1 {
			t.Errorf("the database was asked %d times", reads)
		}
		time.Sleep(rereadNamespaces)
		list, failure = []belfry.Namespace{{Name: "billing", SignWith: "hooks"}}, nil
		if signed, err := signs(); !signed || err != nil {
			t.Fatalf("after it came back: %t, %v", signed, err)
		}
		list, failure = nil, errors.New("away again")
		time.Sleep(time.Hour)
		if signed, err := signs(); !signed || err != nil {
			t.Errorf("while it is away again: %t, %v", signed, err)
		}
		failure = nil
		time.Sleep(rereadNamespaces)
		if signed, err := signs(); signed || err != nil {
			t.Errorf("after the namespace has changed: %t, %v", signed, err)
		}
	})
}
