package oidc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Rule gives a role to people who have a value in a claim.
type Rule struct {
	Claim, Value string
	Role         belfry.Role
	Namespaces   []string // nil: all
	Commands     bool
}

// RuleForm is how a rule is written.
const RuleForm = "CLAIM=VALUE:ROLE[@NAMESPACE,...][+commands], such as groups=platform:admin or groups=billing-dev:author@billing"

// ParseRules reads rules, one or several lines in each text. A value may have colons and @.
func ParseRules(texts []string) (rules []Rule, err error) {
	for line := range strings.SplitSeq(strings.Join(texts, "\n"), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, right := line, ""
		if i := strings.LastIndex(line, ":"); i >= 0 {
			left, right = line[:i], line[i+1:]
		}
		var r Rule
		r.Claim, r.Value, _ = strings.Cut(left, "=")
		right, r.Commands = strings.CutSuffix(right, "+commands")
		role, namespaces, named := strings.Cut(right, "@")
		if r.Role = belfry.Role(role); named {
			r.Namespaces = strings.Split(namespaces, ",")
		}
		known := slices.ContainsFunc(r.Role.EnumValues(), func(v belfry.EnumValue) bool { return v.Value == role }) && r.Role != belfry.RoleWorker
		if r.Claim == "" || r.Value == "" || !known || slices.ContainsFunc(r.Namespaces, func(n string) bool { return !validate.Namespace(n) }) {
			return nil, fmt.Errorf("%q is not %s; the roles are reader, operator, author and admin", line, RuleForm)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// User is a person as the issuer knows them, with the claims that rules name.
type User struct {
	Subject string              `json:"subject"`
	Name    string              `json:"name,omitempty"`
	Claims  map[string][]string `json:"claims,omitempty"`
}

const maxName = 200 // bytes of the name of a person

func userOf(claims map[string]any, rules []Rule) User {
	text := func(name string) string { s, _ := claims[name].(string); return s }
	u := User{Subject: text("sub"), Claims: map[string][]string{}}
	for _, name := range []string{"email", "preferred_username", "name", "sub"} {
		// An address that the issuer has not checked may be somebody else's.
		if u.Name == "" && (name != "email" || claims["email_verified"] != false) {
			u.Name = sanitize.Text(text(name), maxName)
		}
	}
	for _, r := range rules {
		if r.Claim == "email" && claims["email_verified"] == false {
			continue
		}
		// Kept are the values that rules name: a person may be in thousands of groups.
		if slices.Contains(values(claims, r.Claim), r.Value) && !slices.Contains(u.Claims[r.Claim], r.Value) {
			u.Claims[r.Claim] = append(u.Claims[r.Claim], r.Value)
		}
	}
	return u
}

// values are those of a claim: a text, or a list of texts. The name may be a path into objects,
// such as realm_access.roles.
func values(claims map[string]any, name string) (out []string) {
	switch v := claims[name].(type) {
	case string:
		return []string{v}
	case []any:
		for _, item := range v {
			if s, ok := item.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	if first, rest, ok := strings.Cut(name, "."); ok {
		if inner, ok := claims[first].(map[string]any); ok {
			return values(inner, rest)
		}
	}
	return nil
}

// Principal is what a person may do by the rules in force: the first that matches decides the
// role, and others that match with the same role add their namespaces. Who matches none may do nothing.
func (p *Provider) Principal(u User) (*auth.Principal, error) {
	var out *auth.Principal
	for _, r := range p.Rules {
		all := out != nil && out.Namespaces == nil
		switch {
		case !slices.Contains(u.Claims[r.Claim], r.Value):
		case out == nil:
			out = &auth.Principal{Actor: belfry.Actor{Kind: belfry.ActorUser, ID: u.Subject, Name: u.Name}, Role: r.Role, Namespaces: slices.Clone(r.Namespaces), Commands: r.Commands}
		case out.Role == r.Role:
			if out.Namespaces = append(out.Namespaces, r.Namespaces...); all || r.Namespaces == nil {
				out.Namespaces = nil // which is more than any list
			}
			out.Commands = out.Commands || r.Commands
		}
	}
	if out == nil {
		return nil, belfry.Errorf(belfry.Forbidden, "this server gives no role to %s; ask its operator, who does that with --oidc-role", u.Name)
	}
	return out, nil
}
