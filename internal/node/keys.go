package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/store"
)

// keyFile reads the file of API keys, if there is one.
func (c Config) keyFile() (*api.Keys, error) {
	if c.APIKeyFile == "" {
		return nil, nil
	}
	return api.LoadKeys(c.APIKeyFile)
}

// openKeys makes sure that a node which other machines reach has a key, and reads the keys.
func (n *Node) openKeys(ctx context.Context, file *api.Keys) error {
	if n.config.BootstrapKeyFile != "" || file == nil && !n.config.loopback() {
		if err := n.makeFirstKey(ctx); err != nil {
			return err
		}
	}
	stored, err := api.NewStoredKeys(ctx, n.store, n.log)
	if err != nil {
		return err
	}
	n.access = api.NewAccess(file, stored, n.log)
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
