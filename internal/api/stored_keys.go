package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	readInterval = 2 * time.Second        // between two reads of what has changed
	readAllKeys  = time.Minute            // between two reads of all keys
	readTimeout  = 3 * time.Second        // of a read
	readGap      = 200 * time.Millisecond // between two reads because of wrong keys
	keyOverlap   = time.Minute            // what was written by a transaction that was slow, or by another clock
	keyLease     = 9 * time.Second        // for how long keys are known: with the rest of a request less than 10 s
	touchKeys    = time.Minute            // between two records of the use of a key
)

// KeySource is the keys of the database.
type KeySource interface {
	ChangedAPIKeys(ctx context.Context, since time.Time) ([]store.APIKey, time.Time, error)
	UseAPIKeys(ctx context.Context, used map[string]time.Time) error
}

// StoredKeys are the API keys of the database, of which each node has a copy that is at most a few
// seconds old. Without the database the copy is dropped when its lease ends, and no key is accepted:
// one that was revoked meanwhile would be.
type StoredKeys struct {
	source KeySource
	log    *slog.Logger
	lease  *time.Timer

	reading chan struct{} // full during a read: there is one at a time
	readAll time.Time     // when all were read last
	since   time.Time     // of the store's clock: what was written before is known
	began   time.Time     // the last read
	ended   time.Time

	mu      sync.Mutex
	exist   bool
	until   time.Time     // when the lease ends
	dropped bool          // it has ended, and all keys must be read
	offset  time.Duration // of the store's clock
	byID    map[string]*storedKey
	byHash  map[store.Hash]*storedKey
}

// storedKey is a key that is accepted.
type storedKey struct {
	store.APIKey
	ended           chan struct{}
	used, touchedAt time.Time // guarded by the mutex
}

// NewStoredKeys reads the keys. Run keeps them up to date.
func NewStoredKeys(ctx context.Context, source KeySource, log *slog.Logger) (*StoredKeys, error) {
	s := &StoredKeys{source: source, log: log, reading: make(chan struct{}, 1), byID: map[string]*storedKey{}, byHash: map[store.Hash]*storedKey{}}
	s.lease = time.AfterFunc(keyLease, s.drop)
	return s, s.Refresh(ctx)
}

// Run reads what changes, and records which keys are used, until ctx ends.
func (s *StoredKeys) Run(ctx context.Context) {
	defer s.lease.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(readInterval):
		}
		if s.Refresh(ctx) == nil {
			s.recordUse(ctx)
		}
	}
}

// Exist reports whether there ever was a key.
func (s *StoredKeys) Exist() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exist
}

// Refresh reads what has changed.
func (s *StoredKeys) Refresh(ctx context.Context) error {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	return s.read(ctx)
}

func (s *StoredKeys) read(ctx context.Context) error {
	defer func() { s.ended = time.Now() }()
	began, since := time.Now(), s.since
	s.began = began
	s.mu.Lock()
	all := s.dropped || began.Sub(s.readAll) >= readAllKeys
	s.mu.Unlock()
	if all {
		since = time.Time{}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, now, err := s.source.ChangedAPIKeys(ctx, since)
	if err != nil {
		return err
	}
	if s.since = now.Add(-keyOverlap); all {
		s.readAll = began
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped && !all {
		return errLeaseEnded
	}
	if s.dropped && s.exist {
		s.log.Info("the API keys of the database can be read again")
	}
	s.lease.Reset(keyLease - time.Since(began))
	s.until, s.dropped = began.Add(keyLease), false
	s.offset, s.exist = now.Sub(began), s.exist || len(list) > 0
	gone := map[string]*storedKey{}
	if all {
		gone = maps.Clone(s.byID)
	}
	for _, k := range list {
		known := s.byID[k.ID]
		if known == nil && k.StatusAt(now) == belfry.APIKeyActive {
			known = &storedKey{ended: make(chan struct{})}
			s.byID[k.ID], s.byHash[k.Hash] = known, known
		}
		if delete(gone, k.ID); known != nil {
			known.APIKey = k
		}
	}
	for _, k := range s.byID {
		if gone[k.ID] != nil || k.StatusAt(now) != belfry.APIKeyActive {
			s.end(k)
		}
	}
	return nil
}

// end forgets a key; mu is held.
func (s *StoredKeys) end(k *storedKey) {
	delete(s.byID, k.ID)
	delete(s.byHash, k.Hash)
	close(k.ended)
}

// drop forgets all keys when the lease has ended.
func (s *StoredKeys) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) { // it was prolonged just now
		return
	}
	for _, k := range s.byID {
		s.end(k)
	}
	if s.dropped = true; s.exist {
		s.log.Error(unreadKeys)
	}
}

var errLeaseEnded = errors.New("the lease of the API keys ended while they were read")

const unreadKeys = "this server cannot read the API keys of the database, so it accepts none of them"

// Err says that no key is accepted because the database cannot be read.
func (s *StoredKeys) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exist && s.dropped {
		return belfry.Errorf(belfry.Unavailable, unreadKeys)
	}
	return nil
}

// Authenticate finds the holder of a key. Before it refuses one it reads what has changed, however
// the key is wrong: another node may have created it just now.
func (s *StoredKeys) Authenticate(ctx context.Context, token string) (*auth.Principal, error) {
	id, hash, ok := auth.ParseKey(token)
	if !ok {
		return nil, auth.ErrUnknown
	}
	p, err := s.find(id, hash)
	if err == nil || s.Err() != nil {
		return p, err
	}
	s.readAfter(ctx, time.Now())
	return s.find(id, hash)
}

// readAfter reads what has changed, unless a read has begun since an instant: one is for all who wait.
func (s *StoredKeys) readAfter(ctx context.Context, at time.Time) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	if !s.began.After(at) {
		time.Sleep(readGap - time.Since(s.ended))
		_ = s.read(ctx) // what is not read is not found
	}
}

// find compares a secret with that of the key, or with no secret at all: it takes as long.
func (s *StoredKeys) find(id string, hash store.Hash) (*auth.Principal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byID[id]
	want := store.Hash{}
	if k != nil {
		want = k.Hash
	}
	if same := subtle.ConstantTimeCompare(hash[:], want[:]) == 1; !same {
		k = nil
	}
	return s.holder(k)
}

// Holder is who has the key with a hash.
func (s *StoredKeys) Holder(hash store.Hash) (*auth.Principal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder(s.byHash[hash])
}

// holder is who has a key, if that is accepted; mu is held.
func (s *StoredKeys) holder(k *storedKey) (*auth.Principal, error) {
	now := time.Now().Add(s.offset)
	switch {
	case s.exist && s.dropped:
		return nil, belfry.Errorf(belfry.Unavailable, unreadKeys)
	case k == nil || k.StatusAt(now) != belfry.APIKeyActive:
		return nil, auth.ErrUnknown
	}
	k.used = now
	return &auth.Principal{
		Actor: belfry.Actor{Kind: belfry.ActorKey, ID: k.ID, Name: k.Name}, Role: k.Role,
		Namespaces: k.Namespaces, Queues: k.Queues, Commands: k.Commands, Ended: k.ended,
	}, nil
}

// recordUse records the keys that were used, each once a minute at most.
func (s *StoredKeys) recordUse(ctx context.Context) {
	used := map[string]time.Time{}
	s.mu.Lock()
	for id, k := range s.byID {
		if k.used.Sub(k.touchedAt) >= touchKeys {
			used[id], k.touchedAt = k.used.Truncate(time.Minute), k.used
		}
	}
	s.mu.Unlock()
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := s.source.UseAPIKeys(ctx, used); err != nil {
		s.log.Debug("cannot record the use of API keys", "error", err)
	}
}
