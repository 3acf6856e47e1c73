package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// callback makes the handler of HTTP jobs send a request that is signed with the keys.
func callback(t *testing.T, keys ...string) (header http.Header, body []byte) {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer receiver.Close()
	h := target.NewHTTP(target.HTTPOptions{
		Guard: target.NewGuard(false, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}),
		SigningKeys: func(context.Context, string, string) (out [][]byte, err error) {
			for _, text := range keys {
				key, err := webhook.ParseKey(text)
				if err != nil {
					return nil, err
				}
				out = append(out, key)
			}
			return out, nil
		},
	})
	defer h.Close()
	run := &belfry.Run{ID: belfry.NewID(time.Now()), JobID: belfry.NewID(time.Now()), Attempt: 1,
		Payload: belfry.MustJSON(belfry.HTTPPayload{URL: receiver.URL, Body: json.RawMessage(`{"text":"Zoë. 10 €",  "n": 1.50}`)})}
	if err := h.Handle(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	return header, body
}

// officialJS is the library for JavaScript of those who wrote the specification. The tests of the
// SDK for TypeScript install it.
const officialJS = "standardwebhooks"

// languages says how the code of a language in docs/signing.md is made a program, which gets the
// arguments of verify but the body, has that on standard input, and prints true or false.
var languages = map[string]struct {
	file, program  string // with %s for the code
	build, command []string
}{
	"go": {"main.go", `package main

%s
func main() {
	body, err := io.ReadAll(os.Stdin)
	fmt.Println(err == nil && verify(os.Args[1], os.Args[2], os.Args[3], os.Args[4], body))
}
`, []string{"go", "build", "-o", "main", "main.go"}, []string{"./main"}},
	"python": {"main.py", `%s
import sys
print(str(verify(*sys.argv[1:], sys.stdin.buffer.read())).lower())
`, nil, []string{"python3", "main.py"}},
	"js": {"main.mjs", `%s
import { readFileSync } from "node:fs";
console.log(verify(...process.argv.slice(2), readFileSync(0)));
`, nil, []string{"node", "main.mjs"}},
	officialJS: {"main.mjs", `%s
import { readFileSync } from "node:fs";
const [key, id, timestamp, signature] = process.argv.slice(2);
try {
	new standardwebhooks.Webhook(key).verify(readFileSync(0), { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature });
	console.log(true);
} catch {
	console.log(false);
}
`, nil, []string{"node", "main.mjs"}},
	"java": {"Main.java", `%s
class Main {
    public static void main(String[] a) throws Exception {
        System.out.println(Signature.verify(a[0], a[1], a[2], a[3], System.in.readAllBytes()));
    }
}
`, []string{"javac", "Main.java"}, []string{"java", "-cp", ".", "Main"}},
	"php": {"main.php", `<?php
%s
echo verify($argv[1], $argv[2], $argv[3], $argv[4], stream_get_contents(STDIN)) ? "true" : "false";
`, nil, []string{"php", "main.php"}},
}

func TestCodeInTheDocumentationVerifiesCallbacks(t *testing.T) {
	text, err := os.ReadFile("../../docs/signing.md")
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]string{}
	for _, found := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		code[found[1]] = found[2]
	}
	code["go"] = strings.Replace(code["go"], "import (", "import (\n\t\"fmt\"\n\t\"io\"\n\t\"os\"", 1)
	if library, _ := filepath.Abs("../../sdk/typescript/node_modules/standardwebhooks/dist/index.js"); exists(library) {
		code[officialJS] = fmt.Sprintf("import standardwebhooks from %q;", "file://"+library)
	}
	older, newer := webhook.NewKey(), webhook.NewKey()
	header, body := callback(t, newer, older)
	key, _ := webhook.ParseKey(newer)
	past, changed := http.Header{}, bytes.Replace(body, []byte("1.50"), []byte("1.51"), 1)
	webhook.Sign(past, "run", time.Now().Add(-10*time.Minute), body, key)
	for language, program := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if code[language] == "" && language == officialJS {
				t.Skip("npm ci in sdk/typescript has not been run")
			}
			if code[language] == "" {
				t.Fatal("docs/signing.md has no code in this language")
			}
			for _, command := range [][]string{program.build, program.command} {
				if len(command) > 0 && !strings.HasPrefix(command[0], "./") {
					if _, err := exec.LookPath(command[0]); err != nil {
						t.Skip(command[0] + " is not installed")
					}
				}
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, program.file), fmt.Appendf(nil, program.program, code[language]), 0o600); err != nil {
				t.Fatal(err)
			}
			execute := func(in []byte, args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
				cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", args[0], err, out)
				}
				return strings.TrimSpace(string(out))
			}
			if program.build != nil {
				execute(nil, program.build...)
			}
			for _, tt := range []struct {
				name, key string
				header    http.Header
				body      []byte
				want      string
			}{
				{"the new key", newer, header, body, "true"},
				{"the old key", older, header, body, "true"},
				{"another key", webhook.NewKey(), header, body, "false"},
				{"another body", newer, header, changed, "false"},
				{"an old request", newer, past, body, "false"},
			} {
				h := tt.header
				if out := execute(tt.body, append(program.command, tt.key, h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"))...); out != tt.want {
					t.Errorf("%s: got %q, want %s", tt.name, out, tt.want)
				}
			}
		})
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
