package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/client"
)

// writeConfig writes a configuration file that the commands use.
func writeConfig(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	path := filepath.Join(dir, "belfry", "config.yaml")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, content)
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConnectionSettingsPrecedence(t *testing.T) {
	const file = "server: http://file\nkey: filekey\nnamespace: filespace\noutput: yaml\n"
	keyFile := writeFile(t, filepath.Join(t.TempDir(), "key"), "keyfilekey\n")
	for _, tt := range []struct {
		name  string
		file  string
		env   map[string]string
		flags connectionFlags
		want  settings
	}{
		{"nothing", "", nil, connectionFlags{}, settings{Server: defaultServer, Key: "", Namespace: "", Output: "table"}},
		{"an empty file", "# nothing\n", nil, connectionFlags{}, settings{Server: defaultServer, Key: "", Namespace: "", Output: "table"}},
		{"the file", file, nil, connectionFlags{}, settings{Server: "http://file", Key: "filekey", Namespace: "filespace", Output: "yaml"}},
		{"the environment", file, map[string]string{"BELFRY_SERVER": "http://env", "BELFRY_KEY": "envkey", "BELFRY_NAMESPACE": "envspace"}, connectionFlags{},
			settings{Server: "http://env", Key: "envkey", Namespace: "envspace", Output: "yaml"}},
		{"a part of the environment", file, map[string]string{"BELFRY_KEY": "envkey"}, connectionFlags{}, settings{Server: "http://file", Key: "envkey", Namespace: "filespace", Output: "yaml"}},
		{"an empty variable", file, map[string]string{"BELFRY_SERVER": ""}, connectionFlags{}, settings{Server: "http://file", Key: "filekey", Namespace: "filespace", Output: "yaml"}},
		{"flags", file, map[string]string{"BELFRY_SERVER": "http://env", "BELFRY_KEY": "envkey", "BELFRY_NAMESPACE": "envspace"},
			connectionFlags{server: "http://flag", key: "flagkey", namespace: "flagspace", output: "json"}, settings{Server: "http://flag", Key: "flagkey", Namespace: "flagspace", Output: "json"}},
		{"a key file", file, map[string]string{"BELFRY_KEY": "envkey"}, connectionFlags{keyFile: keyFile}, settings{Server: "http://file", Key: "keyfilekey", Namespace: "filespace", Output: "yaml"}},
		{"TLS in the file", "tls_ca: ca\ntls_fingerprint: f\ntls_client_cert: c\ntls_client_key: k\ninsecure_plain_http: true\n", nil, connectionFlags{},
			settings{Server: defaultServer, Output: "table", TLSCA: "ca", TLSFingerprint: "f", TLSClientCert: "c", TLSClientKey: "k", InsecurePlainHTTP: true}},
		{"TLS in the environment", "tls_ca: ca\n", map[string]string{"BELFRY_TLS_CA": "e", "BELFRY_TLS_FINGERPRINT": "f", "BELFRY_TLS_CLIENT_CERT": "c", "BELFRY_TLS_CLIENT_KEY": "k", "BELFRY_INSECURE_PLAIN_HTTP": "1"}, connectionFlags{},
			settings{Server: defaultServer, Output: "table", TLSCA: "e", TLSFingerprint: "f", TLSClientCert: "c", TLSClientKey: "k", InsecurePlainHTTP: true}},
		{"TLS in flags", "tls_ca: ca\n", map[string]string{"BELFRY_TLS_CA": "e"}, connectionFlags{tls: client.TLS{CAFile: "x", Fingerprint: "f", CertFile: "c", KeyFile: "k"}, plain: true},
			settings{Server: defaultServer, Output: "table", TLSCA: "x", TLSFingerprint: "f", TLSClientCert: "c", TLSClientKey: "k", InsecurePlainHTTP: true}},
		{"a namespace that looks like a number", "namespace: 007\n", nil, connectionFlags{}, settings{Server: defaultServer, Key: "", Namespace: "007", Output: "table"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.file != "" {
				writeConfig(t, tt.file, 0o600)
			}
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			got, err := tt.flags.settings()
			if err != nil || got != tt.want {
				t.Errorf("got %+v, error %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestConfigFileErrors(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		mode       os.FileMode
		want       string // "" for none
	}{
		{"a key that others may read", "key: secret\n", 0o644, "contains a key, but other users may read it (mode 0644); run: chmod 600 "},
		{"a key that the group may read", "key: secret\n", 0o640, "chmod 600"},
		{"no key that others may read", "server: http://x\n", 0o644, ""},
		{"an unknown key", "server: http://x\nsever: http://y\n", 0o600, "config.yaml:2: sever: is unknown; did you mean \"server\"?"},
		{"a key twice", "server: http://x\nserver: http://y\n", 0o600, "config.yaml:2: server is duplicated; first in line 1"},
		{"a list", "- server\n", 0o600, "config.yaml:1: must consist of keys and values, such as server: ..."},
		{"two documents", "server: a\n---\nserver: b\n", 0o600, "config.yaml:3: the configuration must be a single document"},
		{"a value that is a list", "server: http://x\nkey: [a]\n", 0o600, "config.yaml:2: key: must be a string, not an array"},
		{"an unknown output", "output: xml\n", 0o600, `config.yaml:1: output: must be "table", "wide", "json" or "yaml"`},
		{"broken YAML", "server: http://x\nkey: a: b\n", 0o600, "config.yaml:2: mapping values are not allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			writeConfig(t, tt.file, tt.mode)
			_, err := (&connectionFlags{}).settings()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains the key: %v", err)
			}
		})
	}
}

func TestConnectionFlagErrors(t *testing.T) {
	two := writeFile(t, filepath.Join(t.TempDir(), "keys"), "one\ntwo\n")
	p := &testCLI{t: t}
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an unknown output", []string{"-o", "xml"}, exitUsage, `--output: "xml" is not one of table, wide, json, yaml`},
		{"no time", []string{"--request-timeout", "0s"}, exitUsage, "--request-timeout"},
		{"two keys", []string{"--key", "a", "--key-file", "b"}, exitUsage, "use either --key or --key-file"},
		{"a key file that is not there", []string{"--key-file", "nowhere"}, exitOther, "--key-file: nowhere: no such file"},
		{"a key file of two lines", []string{"--key-file", two}, exitOther, "must have one line"},
		{"an address of another scheme", []string{"--server", "ftp://localhost"}, exitUsage, "does not start with http:// or https://"},
		{"a key with a blank", []string{"--key", "a b"}, exitUsage, "the key must have printable ASCII characters only"},
	} {
		r := p.run(append([]string{"job", "list"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.want) || r.out != "" {
			t.Errorf("%s: got %+v, want code %d and %q", tt.name, r, tt.code, tt.want)
		}
	}
}

func TestConnectionSendsNamespaceAndKey(t *testing.T) {
	const key = "a-key-of-more-than-thirty-two-characters"
	p := withServer(t, "--api-key-file", writeFile(t, filepath.Join(t.TempDir(), "keys"), "ops:"+key+"\n"))
	r := p.run("job", "list")
	if r.code != exitNotAllowed || !strings.Contains(r.err, "Set the API key with BELFRY_KEY, --key-file") {
		t.Errorf("without a key: %+v", r)
	}
	if r := p.run("job", "list", "--key", strings.Repeat("x", 40)); r.code != exitNotAllowed || strings.Contains(r.err, "xxx") {
		t.Errorf("with another key: %+v", r)
	}
	writeConfig(t, "key: "+key+"\nserver: http://127.0.0.1:1\n", 0o600)
	p.ok("job", "create", "--name", "here", "--schedule", "@yearly", "--handler", "h", "--namespace", "team-a")
	if r := p.ok("job", "list"); r.out != "" {
		t.Errorf("the default namespace has %q", r.out)
	}
	t.Setenv("BELFRY_NAMESPACE", "team-a")
	if r := p.ok("job", "list"); !strings.Contains(r.out, "here") {
		t.Errorf("the namespace has %q", r.out)
	}
	if r := p.run("job", "list", "-n", "Not A Namespace"); r.code != exitRefused {
		t.Errorf("a namespace that cannot be: %+v", r)
	}
}

func TestServerAddressSpellings(t *testing.T) {
	p := withServer(t)
	host := strings.TrimPrefix(p.server, "http://")
	for _, server := range []string{host, host + "/", host + "/api/v1", p.server + "/api/v1", p.server + "/api/v1/"} {
		(&testCLI{t: t, server: server}).ok("job", "list")
	}
}

func TestServerAddressWithTheWrongScheme(t *testing.T) {
	plain, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	defer plain.Close()
	defer secure.Close()
	for _, tt := range []struct{ server, want string }{
		{strings.Replace(plain.URL, "http:", "https:", 1), "the server does not use TLS: use " + plain.URL},
		{strings.Replace(secure.URL, "https:", "http:", 1), "the server uses TLS: use " + secure.URL},
	} {
		r := (&testCLI{t: t, server: tt.server}).run("job", "list")
		if want := "belfry: job list: no answer from " + tt.server + ": " + tt.want + "\n"; r.code != exitUnreachable || r.err != want {
			t.Errorf("got %+v, want %q", r, want)
		}
	}
}

func TestConnectionErrorDoesNotShowPassword(t *testing.T) {
	p := &testCLI{t: t, server: "http://user:password@host"}
	if r := p.run("job", "list"); r.code != exitUsage || strings.Contains(r.err, "password@") {
		t.Errorf("got %+v", r)
	}
}
