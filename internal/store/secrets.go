package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
)

// Secrets is the named secrets, the keys that encrypt, and the texts that they encrypt. A store
// keeps what it is given: package secretstore encrypts it before.
type Secrets interface {
	// PutSecret creates or replaces a secret. Unless the value is the same, the one before it is
	// kept for as long as asked.
	PutSecret(ctx context.Context, s SecretRecord, keep time.Duration) (SecretRecord, error)

	// Secret returns a secret; NotFound if there is none.
	Secret(ctx context.Context, namespace, name string) (SecretRecord, error)

	// ListSecrets returns the secrets of a namespace by name, or all if it is empty.
	ListSecrets(ctx context.Context, namespace string) ([]SecretRecord, error)

	// DeleteSecret deletes a secret; NotFound if there is none.
	DeleteSecret(ctx context.Context, namespace, name string) error

	// JobsWithText returns jobs of a namespace whose payload has one of the texts, up to a limit.
	// It reads all jobs of the namespace.
	JobsWithText(ctx context.Context, namespace string, texts [2]string, limit int) ([]TextJob, error)

	// DataKeys returns the data keys of a namespace, or all if it is empty, the oldest first.
	DataKeys(ctx context.Context, namespace string) ([]DataKey, error)

	// SaveDataKeys adds data keys, or replaces how they are encrypted. A key that there is with
	// another origin, the id of the key that encrypts it, than the one given is left as it is.
	SaveDataKeys(ctx context.Context, from string, keys []DataKey) error

	// EncryptedTexts returns texts that are encrypted or should be, in the order of their places
	// and after one.
	EncryptedTexts(ctx context.Context, after TextPlace, limit int) ([]EncryptedText, error)

	// ReplaceTexts replaces texts, except those that are others now, and says how many.
	ReplaceTexts(ctx context.Context, texts []EncryptedText, by []string) (int, error)
}

// SecretRecord is a secret with its values.
type SecretRecord struct {
	belfry.Secret
	Previous string // empty: none
}

// DataKey is a key that encrypts values of a namespace, itself encrypted.
type DataKey struct {
	Namespace string
	Version   int
	KeyID     string // of the key that encrypts it
	Wrapped   string
}

// TextJob is a job that was found by the text of its payload.
type TextJob struct {
	ID      belfry.ID
	Name    string
	Payload json.RawMessage
}

// TextTables are the tables that have encrypted texts, in the order in which they are read. In
// all but the last two, the text is the payload of a job.
var TextTables = []string{"jobs", "revisions", "triggers", "runs", "dead", "ended", "channels", "secrets"}

// TextPlace is where an encrypted text is.
type TextPlace struct {
	Table    string
	ID       belfry.ID // of the row
	Revision int
	// Of a channel or secret.
	Namespace, Name string
}

// EncryptedText is a text that is encrypted, in whole or in parts.
type EncryptedText struct {
	TextPlace
	JobID belfry.ID // whose payload it is
	Text  string
}

// NoSuchSecret is the error of a secret that does not exist.
func NoSuchSecret(name string) error {
	return belfry.Errorf(belfry.NotFound, "there is no secret named %.100q", name)
}
