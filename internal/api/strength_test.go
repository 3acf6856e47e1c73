package api

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// S3
func TestWeakKeysAreRefused(t *testing.T) {
	for _, weak := range []string{
		"", "short", strings.Repeat("x", 32), strings.Repeat("x", 4000), strings.Repeat("ab", 40), strings.Repeat("password", 8), strings.Repeat("abcdefghijklmnop", 4),
		"0123456789abcdef0123456789abcdef", "00000000000000000000000000000001", "abcdefghijklmnopqrstuvwxyz0123456789", "zyxwvutsrqponmlkjihgfedcba9876543210",
		"11112222333344445555666677778888", "changeme-changeme-changeme-changeme", "alice-0123456789-0123456789-0123456789", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
	} {
		if err := checkStrength(weak); err == nil || weak != "" && len(weak) > 8 && strings.Contains(err.Error(), weak) {
			t.Errorf("%.50q: %v", weak, err)
		}
	}
	for range 2000 { // what people are told to use
		random := make([]byte, 32)
		rand.Read(random)
		for _, strong := range []string{base64.StdEncoding.EncodeToString(random), base64.RawURLEncoding.EncodeToString(random), hex.EncodeToString(random), strings.ToUpper(hex.EncodeToString(random))} {
			if err := checkStrength(strong); err != nil {
				t.Fatalf("%q: %v", strong, err)
			}
		}
	}
}

func TestRightsInTheKeyFile(t *testing.T) {
	for rights, says := range map[string]string{
		" role=reader":                               "",
		" role=author namespace=billing,ops":         "",
		"  role=worker  queue=a,b namespace=billing": "",
		" namespace=billing commands":                "",
		" role=boss":                                 "the role is none of",
		" role=":                                     "the role is none of",
		" namespace=":                                "a namespace has",
		" namespace=a,B":                             "a namespace has",
		" role=worker queue=a,,b":                    "a queue is not",
		" role=reader queue=a":                       "is for the role worker",
		" commands=yes":                              "must be any of",
		" secret":                                    "must be any of",
	} {
		_, err := LoadKeys(keyFile(t, "alice:"+aliceKey+rights, 0o600))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v, want %q", rights, err, says)
		}
	}
	keys, err := LoadKeys(keyFile(t, "a:"+aliceKey+" role=author namespace=billing,ops commands\nb:"+bobKey, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := check(keys, "Bearer "+aliceKey)
	b, _ := check(keys, "Bearer "+bobKey)
	if a.Role != "author" || len(a.Namespaces) != 2 || !a.Commands || !a.Sees("ops") || a.Sees("default") {
		t.Errorf("alice is %+v", a)
	}
	if b.Role != "admin" || !b.SeesAll() || !b.Commands {
		t.Errorf("bob is %+v", b)
	}
}

// Timing tells nothing: whatever is looked up, secrets are compared in constant time before anything
// is returned, and there is no other comparison of hashes.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	for file, function := range map[string]string{"stored_keys.go": "find", "keys.go": "Holder"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name != function {
				continue
			}
			found = true
			var compared, returned token.Pos
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if n.Sel.Name == "ConstantTimeCompare" {
						compared = n.Pos()
					}
				case *ast.ReturnStmt, *ast.BranchStmt:
					if returned == 0 {
						returned = n.Pos()
					}
				}
				return true
			})
			if compared == 0 || returned < compared {
				t.Errorf("%s of %s returns before it compares in constant time", function, file)
			}
		}
		if !found {
			t.Errorf("%s has no function %s", file, function)
		}
	}
}
