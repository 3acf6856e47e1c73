package control_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/secretstore"
	"github.com/belfry-sh/belfry/internal/validate"
)

func withSecrets(t *testing.T) *control.Control {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := encrypt.CreateKeys(path); err != nil {
		t.Fatal(err)
	}
	keys, err := encrypt.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := secretstore.New(t.Context(), controltest.Open(t), keys)
	if err != nil {
		t.Fatal(err)
	}
	return control.New(s, plan.Defaults{})
}

func fieldsOf(err error) string {
	if e, ok := err.(*belfry.Error); ok && e.Code == belfry.Invalid {
		var fields []string
		for _, f := range e.Fields {
			fields = append(fields, f.Field+" "+f.Message)
		}
		return strings.Join(fields, "; ")
	}
	return ""
}

func TestJobsMayReferOnlyToSecretsThatExist(t *testing.T) {
	c := withSecrets(t)
	in := func(name, payload string) validate.Input {
		in := controltest.Named(name, "@yearly")
		in.Payload = json.RawMessage(payload)
		return in
	}
	const uses = `{"url":"https://h.example/?k={{secret 'a'}}","headers":{"Authorization":"Bearer {{secret b}}"},"body":{"x":"{{secret \"c\"}}"}}`
	_, err := c.Create(t.Context(), "default", in("one", uses), control.Key{})
	for _, want := range []string{"payload.url refers to the secret a,", "payload.headers.Authorization refers to the secret b,", "payload.body refers to the secret c,"} {
		if !strings.Contains(fieldsOf(err), want) {
			t.Errorf("create: got %v, want %s", fieldsOf(err), want)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, created, err := c.PutSecret(t.Context(), "default", belfry.Secret{Name: name, Value: "the value of " + name}); err != nil || !created {
			t.Fatal(created, err)
		}
	}
	job, err := c.Create(t.Context(), "default", in("one", uses), control.Key{})
	if err != nil || string(job.Payload) != uses {
		t.Errorf("the job is shown with %s, %v", job.Payload, err)
	}
	if _, err := c.Create(t.Context(), "other", in("one", uses), control.Key{}); fieldsOf(err) == "" {
		t.Errorf("in another namespace: %v", err)
	}
	lines := func(yield func(control.Line, error) bool) {
		_ = yield(control.Line{Place: "line 1", Input: in("two", uses)}, nil) && yield(control.Line{Place: "line 2", Input: in("three", strings.Replace(uses, "'a'", "'missing'", 1))}, nil)
	}
	if _, err := c.Import(t.Context(), "default", lines, control.Key{}, false); !strings.Contains(fieldsOf(err), "line 2.payload.url refers to the secret missing") {
		t.Errorf("import: %v", fieldsOf(err))
	}
	if _, err := c.Edit(t.Context(), "default", "one", "", func(m belfry.Manifest) validate.Input {
		m.Payload = json.RawMessage(strings.Replace(uses, "'a'", "'missing'", 1))
		return validate.Input{Manifest: m}
	}); !strings.Contains(fieldsOf(err), "payload.url refers to the secret missing") {
		t.Errorf("edit: %v", err)
	}
	if err := c.DeleteSecret(t.Context(), "default", "a", false); belfry.CodeOf(err) != belfry.Conflict || !strings.Contains(err.Error(), "one") {
		t.Errorf("delete: %v", err)
	}
	if err := c.DeleteSecret(t.Context(), "default", "a", true); err != nil {
		t.Errorf("forced: %v", err)
	}
	// What has nothing to do with the missing secret can still be edited.
	if _, err := c.Edit(t.Context(), "default", "one", "", func(m belfry.Manifest) validate.Input {
		m.Description = "edited"
		return validate.Input{Manifest: m}
	}); err != nil {
		t.Errorf("edit of another field: %v", err)
	}
}

// An operator may trigger jobs, but neither choose where secrets go nor what they stand for.
func TestOnlyWritersUseSecrets(t *testing.T) {
	c := withSecrets(t)
	if _, _, err := c.PutSecret(t.Context(), "default", belfry.Secret{Name: "a", Value: "the value"}); err != nil {
		t.Fatal(err)
	}
	in := controltest.Named("job", "@yearly")
	in.Payload = json.RawMessage(`{"url":"https://h.example/","body":{"token":"stored","n":1}}`)
	if _, err := c.Create(t.Context(), "default", in, control.Key{}); err != nil {
		t.Fatal(err)
	}
	const refers = "payload refers to a secret, which needs the permission to write jobs"
	for role, want := range map[belfry.Role][4]string{
		belfry.RoleOperator: {"payload.token is masked; give the secret itself", refers, refers, refers},
		belfry.RoleAuthor:   {},
	} {
		ctx := auth.With(t.Context(), &auth.Principal{Role: role})
		for i, payload := range []string{`{"token":"***","n":2}`, `{"x":"{{secret \"a\"}}"}`, `"\u007b\u007bsecret 'a'}}"`, `"{{ s\u0065cret a }}"`} {
			_, err := c.Trigger(ctx, "default", "job", belfry.Trigger{Payload: json.RawMessage(payload)}, control.Key{})
			if got := fieldsOf(err); got != want[i] || got == "" && err != nil {
				t.Errorf("%s with %s: %v", role, payload, err)
			}
		}
		if _, err := c.Trigger(ctx, "default", "job", belfry.Trigger{Payload: json.RawMessage(`{"n":3}`)}, control.Key{}); err != nil {
			t.Errorf("%s without secrets: %v", role, err)
		}
	}
}

func TestInvalidSecrets(t *testing.T) {
	c := withSecrets(t)
	for name, tt := range map[string]struct {
		secret belfry.Secret
		want   string
	}{
		"no value":   {belfry.Secret{Name: "a"}, "value is missing"},
		"a long one": {belfry.Secret{Name: "a", Value: strings.Repeat("é", 40_000)}, "value has more than 65536 bytes"},
		"no host":    {belfry.Secret{Name: "a", Value: "x", AllowedHosts: []string{"https://h/"}}, "allowed_hosts must be"},
		"two stars":  {belfry.Secret{Name: "a", Value: "x", AllowedHosts: []string{"*.*.example"}}, "allowed_hosts must be"},
	} {
		if _, _, err := c.PutSecret(t.Context(), "default", tt.secret); !strings.Contains(fieldsOf(err), tt.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, _, err := c.PutSecret(t.Context(), "default", belfry.Secret{Name: "a", Value: "x", AllowedHosts: []string{"API.example.com", "*.example.org", "::1"}}); err != nil {
		t.Error(err)
	}
	saved, created, err := c.PutSecret(t.Context(), "default", belfry.Secret{Name: "a"})
	if err != nil || created || saved.Value != "" || len(saved.AllowedHosts) != 3 {
		t.Errorf("without a value: %+v, %v", saved, err)
	}
}
