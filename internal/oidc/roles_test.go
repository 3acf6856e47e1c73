package oidc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestRules(t *testing.T) {
	const rules = `
groups=platform:admin+commands
# people of billing
groups=billing-dev:author@billing
groups=ops:author@ops,infra+commands
groups=all-authors:author
realm_access.roles=viewer:reader
https://example.com/teams=a:b:operator@a
email=bob@example.com:operator@default
`
	parsed, err := ParseRules([]string{rules, "groups=guests:reader@demo"})
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{Rules: parsed})
	for _, tt := range []struct{ claims, want string }{
		{`{"groups":["x","platform"]}`, "admin [] true"},
		{`{"groups":"platform"}`, "admin [] true"},
		{`{"groups":["billing-dev"]}`, "author [billing] false"},
		{`{"groups":["ops","billing-dev"]}`, "author [billing ops infra] true"},
		{`{"groups":["all-authors","billing-dev"]}`, "author all false"},
		{`{"groups":["all-authors","ops"]}`, "author all true"},
		{`{"groups":["guests","billing-dev"]}`, "author [billing] false"},
		{`{"groups":["guests"]}`, "reader [demo] false"},
		{`{"groups":["guests"],"realm_access":{"roles":["viewer"]}}`, "reader all false"},
		{`{"https://example.com/teams":["a:b"]}`, "operator [a] false"},
		{`{"email":"bob@example.com"}`, "operator [default] false"},
		{`{"email":"bob@example.com","email_verified":true}`, "operator [default] false"},
		{`{"email":"bob@example.com","email_verified":false}`, "none"},
		{`{"email":"BOB@example.com"}`, "none"},
		{`{"groups":["Platform","platform "]}`, "none"},
		{`{"groups":{"platform":true}}`, "none"},
		{`{"groups":[["platform"]]}`, "none"},
		{`{"realm_access":"viewer"}`, "none"},
		{`{}`, "none"},
	} {
		var claims map[string]any
		if err := json.Unmarshal([]byte(tt.claims), &claims); err != nil {
			t.Fatal(err)
		}
		got := "none"
		who, err := p.Principal(userOf(claims, parsed))
		if err == nil {
			namespaces := fmt.Sprint(who.Namespaces)
			if who.SeesAll() {
				namespaces = "all"
			}
			got = fmt.Sprint(who.Role, " ", namespaces, " ", who.Commands)
		} else if belfry.CodeOf(err) != belfry.Forbidden {
			t.Errorf("%s: %v", tt.claims, err)
		}
		if want := strings.Replace(tt.want, "admin []", "admin all", 1); got != want {
			t.Errorf("%s: got %q, want %q", tt.claims, got, want)
		}
	}
	for _, text := range []string{"platform", "groups=platform", "groups=:admin", "=x:admin", "groups=x:root", "groups=x:worker", "groups=x:", "groups=x:author@", "groups=x:author@Billing", "groups=x:author@a,", "groups=x:author+shell", "groups=x:admin\ny"} {
		if _, err := ParseRules([]string{text}); err == nil || !strings.Contains(err.Error(), "groups=platform:admin") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestNamesOfPeople(t *testing.T) {
	for claims, want := range map[string]string{
		`{"sub":"1","name":"Ann","email":"ann@example.com","preferred_username":"ann"}`:           "ann@example.com",
		`{"sub":"1","email":"ann@example.com","email_verified":false,"preferred_username":"ann"}`: "ann",
		`{"sub":"1","name":"Ann\u0000"}`: "Ann\uFFFD",
		`{"sub":"1"}`:                    "1",
	} {
		var parsed map[string]any
		if err := json.Unmarshal([]byte(claims), &parsed); err != nil {
			t.Fatal(err)
		}
		if got := userOf(parsed, nil).Name; got != want {
			t.Errorf("%s: got %q, want %q", claims, got, want)
		}
	}
}
