package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/secretstore"
)

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
