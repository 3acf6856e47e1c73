package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// APIKeys is the API keys. Those that have ended stay: that there was one means that keys are
// required.
type APIKeys interface {
	// CreateAPIKey stores a key, unless there is one with its KeyID, which it reports.
	CreateAPIKey(ctx context.Context, k APIKey) (created bool, err error)

	// ListAPIKeys returns keys, newest first.
	ListAPIKeys(ctx context.Context, page Page) ([]APIKey, error)

	// ChangedAPIKeys returns the keys that were written at or after an instant, and the store's time
	// before they were read. That a key was used is no change.
	ChangedAPIKeys(ctx context.Context, since time.Time) (list []APIKey, now time.Time, err error)

	// EditAPIKey locks a key, asks edit what it becomes and which key is to be added, and writes both;
	// nil is nothing. An error of edit is returned as it is. NotFound if there is none.
	EditAPIKey(ctx context.Context, id string, edit EditAPIKey) (APIKey, error)

	// UseAPIKeys records when keys were used last.
	UseAPIKeys(ctx context.Context, used map[string]time.Time) error
}

// APIKey is a key as it is stored.
type APIKey struct {
	belfry.APIKey           // without the key itself, and what is only in requests
	Order         belfry.ID // in lists
	Hash          Hash      // of the secret
}

// EditAPIKey says what a key becomes at the store's time, and which one is added. It must be pure.
type EditAPIKey func(k APIKey, now time.Time) (changed, added *APIKey, err error)

// NoSuchAPIKey is the error of a key that does not exist.
func NoSuchAPIKey(id string) error {
	return belfry.Errorf(belfry.NotFound, "there is no API key with the id %.40q", id)
}
