package auth

import (
	"slices"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestRolesOfPermissions(t *testing.T) {
	all := []Permission{Public, Known, Read, Operate, Write, Admin, Work}
	for role, want := range map[belfry.Role][]Permission{
		"":                  nil,
		belfry.RoleReader:   {Public, Known, Read},
		belfry.RoleOperator: {Public, Known, Read, Operate},
		belfry.RoleAuthor:   {Public, Known, Read, Operate, Write},
		belfry.RoleAdmin:    all,
		belfry.RoleWorker:   {Public, Known, Work},
	} {
		var got []Permission
		for _, p := range all {
			if (&Principal{Role: role}).Has(p) {
				got = append(got, p)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the role %q has %q, want %q", role, got, want)
		}
	}
	if (&Principal{Role: belfry.RoleAdmin}).Has("other") {
		t.Error("a permission that is not declared is given")
	}
}

func TestNamespacesOfAPrincipal(t *testing.T) {
	for _, tt := range []struct {
		namespaces []string
		sees, all  bool
	}{{nil, true, true}, {[]string{"billing", "ops"}, true, false}, {[]string{"ops"}, false, false}, {[]string{}, false, false}} {
		p := &Principal{Namespaces: tt.namespaces}
		if p.Sees("billing") != tt.sees || p.SeesAll() != tt.all {
			t.Errorf("%q: sees %t, sees all %t", tt.namespaces, p.Sees("billing"), p.SeesAll())
		}
	}
}
