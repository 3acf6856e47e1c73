package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/secretstore"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/web"
)

// readKeyFile reads the file of API keys, if there is one.
func (n *Node) readKeyFile(context.Context) (err error) {
	if n.config.APIKeyFile != "" {
		n.keyFile, err = api.LoadKeys(n.config.APIKeyFile)
	}
	return err
}

// openKeys makes sure that a node which other machines reach has a key, and reads the keys.
func (n *Node) openKeys(ctx context.Context) error {
	if n.config.BootstrapKeyFile != "" || n.keyFile == nil && !n.config.loopback() {
		if err := n.makeFirstKey(ctx); err != nil {
			return err
		}
	}
	stored, err := api.NewStoredKeys(ctx, n.store, n.log)
	if err != nil {
		return err
	}
	n.access = api.NewAccess(n.keyFile, stored, n.log)
	n.access.Metrics, n.access.Always = n.metrics, !n.config.loopback()
	if n.oidc != nil {
		n.access.Others = append(n.access.Others, n.oidc)
	}
	return nil
}

// BootstrapKey is the API key that was made because there was none; empty: none was, or it is in
// a file.
func (n *Node) BootstrapKey() string { return n.bootstrap }

// RequiresKeys reports whether requests need a key.
func (n *Node) RequiresKeys() bool { return n.access.Required() }

// makeFirstKey creates an admin of everything if the database has none that is active: from the file,
// if that exists, or a new one, which is written to the file before it counts.
func (n *Node) makeFirstKey(ctx context.Context) error {
	list, now, err := n.store.ChangedAPIKeys(ctx, time.Time{})
	if err != nil {
		return err
	}
	for _, k := range list {
		if k.Role == belfry.RoleAdmin && k.Namespaces == nil && k.StatusAt(now) == belfry.APIKeyActive {
			return nil
		}
	}
	path := n.config.BootstrapKeyFile
	text, err := readFirstKey(path)
	if err != nil {
		return err
	}
	made := text == ""
	if made { // Nodes that start at once make keys with one id, of which one counts.
		text, _ = auth.NewKey(fmt.Sprintf("boot%04d", len(list)%10_000))
	}
	if made && path != "" {
		if err := writeFirstKey(path, text); err != nil {
			return err
		}
	}
	id, hash, _ := auth.ParseKey(text)
	created, err := n.store.CreateAPIKey(ctx, store.APIKey{Order: belfry.NewID(now), Hash: hash, APIKey: belfry.APIKey{
		ID: id, Name: "bootstrap", Role: belfry.RoleAdmin, Commands: true, CreatedAt: now, CreatedBy: &belfry.Actor{Kind: belfry.ActorNode, ID: n.id.String()},
	}})
	switch {
	case err != nil:
		return err
	case !created && made && path != "":
		n.log.Warn("another node has made the first API key; the file is removed", "file", path)
		return os.Remove(path)
	case created && made && path == "":
		n.bootstrap = text
	case created:
		n.log.Info("the first API key counts", "key", id, "file", path)
	}
	return nil
}

// readFirstKey reads the key of a file; empty if there is none.
func readFirstKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return "", fmt.Errorf("--bootstrap-key-file: %w", err)
	}
	text := strings.TrimSpace(string(content))
	if _, _, ok := auth.ParseKey(text); !ok {
		return "", fmt.Errorf("--bootstrap-key-file: %s does not hold a key as belfry makes them, bf_ and 58 characters; remove it, and one is written to it", path)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return "", fmt.Errorf("--bootstrap-key-file: %s has mode %04o: others may read or write it; use chmod 600", path, mode)
	}
	return text, nil
}

func writeFirstKey(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, text)
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		return fmt.Errorf("--bootstrap-key-file: %w", err)
	}
	return nil
}

// openSecrets has the store encrypt secrets.
func (n *Node) openSecrets(ctx context.Context) error {
	keys, err := n.encryptionKeys(ctx)
	if err != nil {
		return err
	}
	encrypted, err := secretstore.New(ctx, n.store, keys)
	if err != nil {
		return err
	}
	if keys == nil && n.config.Handlers == nil { // a benchmark has no secrets
		n.log.Warn("secrets in payloads and channels are stored as they are, and named secrets cannot be created; set --encryption-key-file")
	}
	n.store, n.encryption, n.secrets = encrypted, encrypted, secretstore.NewSource(encrypted)
	n.connections.UseSecrets(n.secrets)
	return nil
}

// encryptionKeys are those of the file, which is made beside a new embedded database; nil: there
// are none.
func (n *Node) encryptionKeys(ctx context.Context) (*encrypt.Keys, error) {
	path := n.config.EncryptionKeyFile
	if path == "" && n.config.DatabaseURL != "" {
		return nil, nil
	}
	if path == "" {
		path = filepath.Join(n.config.Data, "encryption.key")
		used, err := n.store.DataKeys(ctx, "")
		if err != nil {
			return nil, err
		}
		// A new key would be of no use for what is encrypted already.
		if len(used) == 0 {
			if err := encrypt.CreateKeys(path); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("make a key to encrypt secrets with: %w", err)
			}
		}
	}
	keys, err := encrypt.LoadKeys(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && n.config.EncryptionKeyFile == "":
		return nil, fmt.Errorf("%s is missing, and the database has data that is encrypted with the key in it; restore the file from a backup", path)
	case err != nil:
		return nil, fmt.Errorf("--encryption-key-file: %w", err)
	}
	return keys, nil
}

// OIDC is how people log in with OpenID Connect.
type OIDC struct {
	Issuer           string // empty: they use API keys
	ClientID         string
	ClientSecretFile string
	CLIClientID      string   // of the command line; empty: the same client
	Roles            []string // rules, as oidc.ParseRules reads them
}

func (c Config) checkOIDC(invalid func(field, format string, args ...any)) {
	o := c.OIDC
	if o.Issuer == "" {
		if o.ClientID != "" || len(o.Roles) > 0 {
			invalid("--oidc-issuer", "is missing: the address of the issuer")
		}
		return
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
		invalid("--oidc-issuer", "%q is not an https:// address without ? and #", o.Issuer)
	}
	if o.ClientID == "" {
		invalid("--oidc-client-id", "is missing: the id of the client that is registered at the issuer")
	}
	if c.PublicURL == "" {
		invalid("--public-url", "is missing: the issuer sends people back to it")
	}
	if rules, err := oidc.ParseRules(o.Roles); err != nil {
		invalid("--oidc-role", "%s", err)
	} else if len(rules) == 0 {
		invalid("--oidc-role", "is missing: without a rule nobody gets in; give %s", oidc.RuleForm)
	}
}

// openOIDC lets people in beside those who have API keys. The issuer need not answer yet.
func (n *Node) openOIDC(context.Context) error {
	o := n.config.OIDC
	if o.Issuer == "" {
		return nil
	}
	rules, err := oidc.ParseRules(o.Roles)
	if err != nil {
		return err
	}
	secret := ""
	if o.ClientSecretFile != "" {
		content, err := os.ReadFile(o.ClientSecretFile)
		if secret = strings.TrimSpace(string(content)); err == nil && secret == "" {
			err = fmt.Errorf("%s is empty", o.ClientSecretFile)
		}
		if err != nil {
			return fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
	}
	n.oidc = oidc.New(oidc.Options{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: secret, CLIClientID: o.CLIClientID, Rules: rules, Log: n.log,
		RedirectURL: strings.TrimRight(n.config.PublicURL, "/") + web.CallbackPath,
	})
	return nil
}
