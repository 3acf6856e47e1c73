package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/schema"
)

const defaultServer = "http://127.0.0.1:7070"

// connectionFlags are the flags of all commands that use a server.
type connectionFlags struct {
	server, key, keyFile, namespace, output string

	tls        client.TLS
	plain      bool
	timeout    time.Duration
	noColor    bool
	utc, local bool
}

func (f *connectionFlags) add(cmd *cobra.Command) *cobra.Command {
	p := cmd.PersistentFlags()
	p.StringVar(&f.server, "server", "", "`ADDRESS` of the server (default "+defaultServer+") [BELFRY_SERVER]")
	p.StringVar(&f.key, "key", "", "API `KEY`; other users of this machine can see it in the list of processes, so prefer BELFRY_KEY, --key-file or the configuration file [BELFRY_KEY]")
	p.StringVar(&f.keyFile, "key-file", "", "`FILE` with the API key")
	p.StringVar(&f.tls.CAFile, "tls-ca", "", "`FILE` with the certificates to trust instead of those of this machine [BELFRY_TLS_CA]")
	p.StringVar(&f.tls.Fingerprint, "tls-fingerprint", "", "`SHA256:...` of the server's certificate, as a server with --tls-auto prints it [BELFRY_TLS_FINGERPRINT]")
	p.StringVar(&f.tls.CertFile, "tls-client-cert", "", "`FILE` with the certificate to show to the server [BELFRY_TLS_CLIENT_CERT]")
	p.StringVar(&f.tls.KeyFile, "tls-client-key", "", "`FILE` with the key of that certificate [BELFRY_TLS_CLIENT_KEY]")
	p.BoolVar(&f.plain, "insecure-plain-http", false, "send the key without TLS to a server on another machine: whoever is between reads it [BELFRY_INSECURE_PLAIN_HTTP]")
	p.StringVarP(&f.namespace, "namespace", "n", "", "`NAME` of the namespace (default \"default\") [BELFRY_NAMESPACE]")
	p.StringVarP(&f.output, "output", "o", "", "output `FORMAT`: "+strings.Join(formats, ", ")+" (default table)")
	p.DurationVar(&f.timeout, "request-timeout", 30*time.Second, "timeout of one request")
	p.BoolVar(&f.utc, "utc", false, "print absolute times, in UTC")
	p.BoolVar(&f.local, "local", false, "print absolute times, in the time zone of this machine")
	p.BoolVar(&f.noColor, "no-color", false, "print without colours [NO_COLOR]")
	completeFlag(cmd, "output", formats...)
	for _, flag := range []string{"namespace", "server", "key"} {
		completeFlag(cmd, flag)
	}
	return cmd
}

// settings are the fields of the configuration file.
type settings struct {
	Server    string `json:"server"`
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	Output    string `json:"output" enum:"table,wide,json,yaml"`

	TLSCA             string `json:"tls_ca"`
	TLSFingerprint    string `json:"tls_fingerprint"`
	TLSClientCert     string `json:"tls_client_cert"`
	TLSClientKey      string `json:"tls_client_key"`
	InsecurePlainHTTP bool   `json:"insecure_plain_http"`
}

// client makes a client. It does not connect yet.
func (s settings) client(options ...client.Option) (*client.Client, error) {
	options = append(options, client.WithKey(s.Key), client.WithNamespace(s.Namespace), client.WithUserAgent("belfry/"+version()),
		client.WithTLS(client.TLS{CAFile: s.TLSCA, Fingerprint: s.TLSFingerprint, CertFile: s.TLSClientCert, KeyFile: s.TLSClientKey}))
	if s.InsecurePlainHTTP {
		options = append(options, client.WithInsecurePlainHTTP())
	}
	c, err := client.New(s.Server, options...)
	return c, asUsage(err)
}

// settings come from the flags, the environment, the configuration file, or the defaults.
func (f *connectionFlags) settings() (settings, error) {
	config, err := readConfig(configPath())
	if err != nil {
		return settings{}, err
	}
	s := settings{
		Server:    cmp.Or(f.server, os.Getenv("BELFRY_SERVER"), config.Server, defaultServer),
		Key:       cmp.Or(f.key, os.Getenv("BELFRY_KEY"), config.Key),
		Namespace: cmp.Or(f.namespace, os.Getenv("BELFRY_NAMESPACE"), config.Namespace),
		Output:    cmp.Or(f.output, config.Output, "table"),

		TLSCA:          cmp.Or(f.tls.CAFile, os.Getenv("BELFRY_TLS_CA"), config.TLSCA),
		TLSFingerprint: cmp.Or(f.tls.Fingerprint, os.Getenv("BELFRY_TLS_FINGERPRINT"), config.TLSFingerprint),
		TLSClientCert:  cmp.Or(f.tls.CertFile, os.Getenv("BELFRY_TLS_CLIENT_CERT"), config.TLSClientCert),
		TLSClientKey:   cmp.Or(f.tls.KeyFile, os.Getenv("BELFRY_TLS_CLIENT_KEY"), config.TLSClientKey),
	}
	plain, _ := strconv.ParseBool(os.Getenv(environmentName("insecure-plain-http")))
	s.InsecurePlainHTTP = f.plain || plain || config.InsecurePlainHTTP
	if f.keyFile != "" {
		if f.key != "" {
			return s, usagef("use either --key or --key-file")
		}
		if s.Key, err = readKey(f.keyFile); err != nil {
			return s, err
		}
	}
	return s, checkFormat(s.Output)
}

func checkFormat(format string) error {
	if !slices.Contains(formats, format) {
		return usagef("--output: %q is not one of %s", format, strings.Join(formats, ", "))
	}
	return nil
}

func readKey(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--key-file: %w", pathError(err))
	}
	key := strings.TrimSpace(string(content))
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return "", fmt.Errorf("--key-file: %s must have one line, the key", escape(path))
	}
	return key, nil
}

// cli is one execution of a command that uses a server.
type cli struct {
	*client.Client
	output
	server string
	cmd    *cobra.Command
	ctx    context.Context
	in     io.Reader
}

// argument is the first argument; empty if there is none.
func (c *cli) argument() string { return c.cmd.Flags().Arg(0) }

// open makes the client. It does not connect yet.
func (f *connectionFlags) open(cmd *cobra.Command) (*cli, error) {
	s, err := f.settings()
	if err != nil {
		return nil, err
	}
	if f.timeout <= 0 {
		return nil, usagef("--request-timeout: must be positive, not %s", f.timeout)
	}
	if s.Key == "" && cmd.Name() != "login" && cmd.Name() != "logout" {
		if s.Key, err = loginToken(cmd.Context(), s.Server); err != nil {
			return nil, err
		}
	}
	out := newOutput(cmd, s.Output, f.noColor)
	switch {
	case f.utc && f.local:
		return nil, usagef("use either --utc or --local")
	case f.utc:
		out.zone = time.UTC
	case f.local:
		out.zone = time.Local
	}
	c, err := s.client(client.WithRetries(2), client.WithHTTPClient(&http.Client{Timeout: f.timeout})) // Somebody waits.
	if err != nil {
		return nil, err
	}
	return &cli{Client: c, output: out, server: s.Server, cmd: cmd, ctx: cmd.Context(), in: cmd.InOrStdin()}, nil
}

// configPath is empty if there is no home directory.
func configPath() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "belfry", "config.yaml")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "belfry", "config.yaml")
}

// readConfig reads the configuration file, which need not exist.
func readConfig(path string) (settings, error) {
	content, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return settings{}, nil
	}
	if err != nil {
		return settings{}, fmt.Errorf("read the configuration: %w", err)
	}
	s, err := parseConfig(path, content)
	if err != nil || s.Key == "" || runtime.GOOS == "windows" {
		return s, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return s, fmt.Errorf("read the configuration: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o044 != 0 {
		return s, fmt.Errorf("%s contains a key, but other users may read it (mode %04o); run: chmod 600 %s", escape(path), mode, escape(path))
	}
	return s, nil
}

func parseConfig(path string, content []byte) (s settings, err error) {
	documents, errs := parseYAML(path, content)
	y := &yamlToJSON{file: path}
	switch {
	case len(errs) > 0 || len(documents) == 0:
		return s, errs.orNil()
	case len(documents) > 1:
		return s, y.errorf(documents[1], "the configuration must be a single document")
	}
	m, errs := y.manifest(documents[0], schema.For[settings]())
	if len(errs) > 0 {
		return s, errs
	}
	fields, _ := schema.Decode(belfry.MustJSON(m.fields), &s) // It is an object.
	return s, m.fieldErrors(fields).orNil()
}

// loginTimeout is how long a person may take to log in.
const loginTimeout = oidc.FlowTimeout

func loginCommand(f *connectionFlags) *cobra.Command {
	device := false
	cmd := &cobra.Command{
		Use: "login", Short: "Log in to a server with OpenID Connect",
		Long: `Log in to a server whose people log in with OpenID Connect. It prints an address, and opens it
in a browser on this machine. With --device, the browser may be on another one: you enter a
code there, if the issuer offers that.

The login is kept in the directory of the configuration, readable by you alone, and commands
use it unless they have an API key. It is prolonged as long as the issuer allows.`,
	}
	cmd.Flags().BoolVar(&device, "device", false, "log in with a browser on another machine")
	return f.add(f.command(cmd, func(c *cli, _ []string) error {
		login, err := c.Login(c.ctx)
		if err != nil {
			return err
		}
		if login.Issuer == "" {
			return fmt.Errorf("%s has no login with OpenID Connect: use an API key, see --key-file", c.server)
		}
		ctx, cancel := context.WithTimeout(c.ctx, loginTimeout)
		defer cancel()
		start := oidc.LogInWithBrowser
		if device {
			start = oidc.LogInWithCode
		}
		token, err := start(ctx, login, func(address, code string) {
			if code != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Open %s in a browser, and enter the code %s\n", escape(address), escape(code))
				return
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Log in at %s\n", escape(address))
			openBrowser(address)
		})
		if err != nil {
			return err
		}
		if err := editLogins(func(logins map[string]oidc.Token) { logins[loginKey(c.server)] = token }); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "You are logged in to %s\n", escape(c.server))
		return nil
	}))
}

func logoutCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "logout", Short: "Forget the login to a server"}
	return f.add(f.command(cmd, func(c *cli, _ []string) error {
		return editLogins(func(logins map[string]oidc.Token) { delete(logins, loginKey(c.server)) })
	}))
}

// openBrowser opens an address, if it can. The person has seen it.
func openBrowser(address string) {
	command := map[string]string{"darwin": "open", "linux": "xdg-open"}[runtime.GOOS]
	if command == "" || runtime.GOOS == "linux" && os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == "" || !strings.HasPrefix(address, "http") {
		return
	}
	if cmd := exec.Command(command, address); cmd.Start() == nil {
		go cmd.Wait()
	}
}

func loginKey(server string) string { return strings.TrimRight(server, "/") }

func loginsPath() string {
	if path := configPath(); path != "" {
		return filepath.Join(filepath.Dir(path), "logins.json")
	}
	return ""
}

// readLogins reads the logins by server.
func readLogins() (logins map[string]oidc.Token, err error) {
	logins = map[string]oidc.Token{}
	content, err := os.ReadFile(loginsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return logins, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &logins)
	}
	if err != nil {
		return nil, fmt.Errorf("read the logins: %w", err)
	}
	return logins, nil
}

// editLogins replaces the file, which nobody else can read, as a whole.
func editLogins(edit func(map[string]oidc.Token)) error {
	logins, err := readLogins()
	if err != nil {
		return err
	}
	edit(logins)
	if err := os.MkdirAll(filepath.Dir(loginsPath()), 0o700); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(loginsPath()), "logins-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	defer os.Remove(file.Name()) // which fails after the rename
	_, err = file.Write(belfry.MustJSON(logins))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), loginsPath())
	}
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// loginToken is the token of the login to a server, prolonged if it is about to expire; empty if
// there is none.
func loginToken(ctx context.Context, server string) (string, error) {
	logins, err := readLogins()
	token, ok := logins[loginKey(server)]
	if err != nil || !ok || time.Until(token.Expiry) > time.Minute {
		return token.IDToken, err
	}
	newer, err := token.Refresh(ctx)
	if err == nil {
		return newer.IDToken, editLogins(func(logins map[string]oidc.Token) { logins[loginKey(server)] = newer })
	}
	// Another command may have used the refresh token just now, which counts once.
	if logins, _ := readLogins(); logins[loginKey(server)].Expiry.After(token.Expiry) {
		return logins[loginKey(server)].IDToken, nil
	}
	if time.Until(token.Expiry) > 0 {
		return token.IDToken, nil
	}
	return "", exitError{fmt.Errorf("%w; log in again: belfry login --server %s", err, server), exitNotAllowed}
}
