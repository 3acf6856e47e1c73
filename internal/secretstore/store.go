// Package secretstore encrypts the secrets that a store keeps: those of payloads and channels, and
// named ones. Whoever uses the store sees them as they are.
package secretstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
)

// refresh is how long a node goes on to encrypt with a data key after there is a newer one.
const refresh = 5 * time.Second

// Store encrypts what it writes and decrypts what it reads. Without keys it writes payloads and
// channels as they are, and refuses named secrets.
type Store struct {
	store.Store
	keys *encrypt.Keys // nil: there are none

	mu    sync.Mutex
	known map[string]*dataKeys // by namespace
}

// dataKeys are the data keys of a namespace.
type dataKeys struct {
	byVersion map[int]*encrypt.DataKey
	latest    *encrypt.DataKey // nil: there is none
	readAt    time.Time
}

// New encrypts what s keeps. Keys may be nil. It fails if s has data of a key that is not among
// them.
func New(ctx context.Context, s store.Store, keys *encrypt.Keys) (*Store, error) {
	out := &Store{Store: s, keys: keys, known: map[string]*dataKeys{}}
	rows, err := s.DataKeys(ctx, "")
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 && keys == nil {
		return nil, errors.New("the database has encrypted data; set --encryption-key-file to the file with its key")
	}
	checked := map[string]bool{} // the keys are the same for all data keys
	for _, row := range rows {
		if checked[row.KeyID] {
			continue
		}
		checked[row.KeyID] = true
		if _, err := out.unwrap(row); err != nil {
			return nil, fmt.Errorf("--encryption-key-file: %w", err)
		}
	}
	return out, nil
}

func aboutKey(namespace string, version int) []byte {
	return encrypt.About("data key", namespace, strconv.Itoa(version))
}

func (s *Store) unwrap(row store.DataKey) ([]byte, error) {
	wrapped, err := base64.StdEncoding.DecodeString(row.Wrapped)
	if err != nil {
		return nil, encrypt.ErrAltered
	}
	return s.keys.Unwrap(row.KeyID, wrapped, aboutKey(row.Namespace, row.Version))
}

func (s *Store) wrap(namespace string, version int, raw []byte, used ...string) store.DataKey {
	id, wrapped := s.keys.Wrap(raw, aboutKey(namespace, version), used...)
	return store.DataKey{Namespace: namespace, Version: version, KeyID: id, Wrapped: base64.StdEncoding.EncodeToString(wrapped)}
}

// read reads the data keys of a namespace.
func (s *Store) read(ctx context.Context, namespace string) (*dataKeys, error) {
	rows, err := s.DataKeys(ctx, namespace)
	if err != nil {
		return nil, err
	}
	found := &dataKeys{byVersion: map[int]*encrypt.DataKey{}, readAt: time.Now()}
	for _, row := range rows {
		raw, err := s.unwrap(row)
		if err != nil {
			return nil, err
		}
		found.latest = encrypt.OpenDataKey(row.Version, raw)
		found.byVersion[row.Version] = found.latest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[namespace] = found
	return found, nil
}

func (s *Store) cached(namespace string) *dataKeys {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[namespace]
}

// sealKey is the data key that encrypts in a namespace, which is made if there is none; nil
// without keys.
func (s *Store) sealKey(ctx context.Context, namespace string) (*encrypt.DataKey, error) {
	if s.keys == nil {
		return nil, nil
	}
	found := s.cached(namespace)
	if found != nil && found.latest != nil && time.Since(found.readAt) < refresh {
		return found.latest, nil
	}
	found, err := s.read(ctx, namespace)
	if err == nil && found.latest == nil {
		if err = s.makeDataKey(ctx, namespace); err == nil {
			found, err = s.read(ctx, namespace)
		}
	}
	if err != nil {
		return nil, err
	}
	return found.latest, nil
}

// makeDataKey makes the first data key of a namespace, unless another node is first. It is encrypted
// as those of other namespaces are: while a key is replaced, a node may not have the new one yet, or not
// know that the old one will go.
func (s *Store) makeDataKey(ctx context.Context, namespace string) error {
	rows, err := s.DataKeys(ctx, "")
	if err != nil {
		return err
	}
	var used []string
	for _, row := range rows {
		used = append(used, row.KeyID)
	}
	return s.SaveDataKeys(store.WithAudit(ctx, nil), "", []store.DataKey{s.wrap(namespace, 1, encrypt.NewDataKey(), used...)})
}

// open decrypts a text, which is about something in a namespace.
func (s *Store) open(ctx context.Context, text, namespace string, about ...string) ([]byte, error) {
	version, ok := encrypt.Version(text)
	if !ok || s.keys == nil {
		return nil, encrypt.ErrAltered
	}
	found := s.cached(namespace)
	if found == nil || found.byVersion[version] == nil {
		var err error
		if found, err = s.read(ctx, namespace); err != nil {
			return nil, err
		}
		if found.byVersion[version] == nil {
			return nil, encrypt.ErrAltered
		}
	}
	return found.byVersion[version].Open(text, append([]string{namespace}, about...)...)
}

// errReserved is the error of a text that would look as if it were encrypted.
var errReserved = &belfry.Error{Code: belfry.Invalid, Message: "the payload is not valid", Fields: []belfry.FieldError{{
	Field: "payload", Message: "has a text with " + encrypt.Prefix + ", which begins encrypted values; a server with --encryption-key-file accepts it",
}}}

// sealPayload encrypts the secrets of a payload. Key may be nil.
func sealPayload(key *encrypt.DataKey, namespace string, job belfry.ID, payload json.RawMessage) (json.RawMessage, error) {
	if key == nil {
		if bytes.Contains(payload, []byte(`"`+encrypt.Prefix)) {
			return nil, errReserved
		}
		return payload, nil
	}
	return secret.Seal(payload, encrypt.Prefix, func(raw []byte) string { return key.Seal(raw, namespace, "payload", job.String()) }), nil
}

// sealPayloadOf encrypts the secrets of the payload of a job, or of one that a run gets in place of it, with the
// key of the namespace.
func (s *Store) sealPayloadOf(ctx context.Context, namespace string, job belfry.ID, payload *json.RawMessage) error {
	if len(*payload) == 0 {
		return nil
	}
	key, err := s.sealKey(ctx, namespace)
	if err == nil {
		*payload, err = sealPayload(key, namespace, job, *payload)
	}
	return err
}

// openPayload decrypts the secrets of a payload.
func (s *Store) openPayload(ctx context.Context, namespace string, job belfry.ID, payload json.RawMessage) (json.RawMessage, error) {
	return secret.Open(payload, encrypt.Prefix, func(text string) ([]byte, error) {
		return s.open(ctx, text, namespace, "payload", job.String())
	})
}

// unreadable is the error of stored data that cannot be decrypted, for users.
func unreadable(what string, err error) error {
	if isUnreadable(err) {
		return belfry.Errorf(belfry.Internal, "%s cannot be decrypted: %w", what, err)
	}
	return err
}

func isUnreadable(err error) bool {
	_, unknown := errors.AsType[*encrypt.UnknownKeyError](err)
	return unknown || errors.Is(err, encrypt.ErrAltered)
}

// CreateJobs encrypts the payloads of jobs.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	return s.Store.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
		for job, err := range jobs {
			if err == nil {
				err = s.sealPayloadOf(ctx, job.Job.Namespace, job.Job.ID, &job.Job.Payload)
			}
			if !yield(job, err) {
				return
			}
		}
	}, r)
}

// openJob decrypts a job that a call returned.
func (s *Store) openJob(ctx context.Context) func(job belfry.Job, err error) (belfry.Job, error) {
	return func(job belfry.Job, err error) (belfry.Job, error) {
		if err != nil {
			return job, err
		}
		if job.Payload, err = s.openPayload(ctx, job.Namespace, job.ID, job.Payload); err != nil {
			return belfry.Job{}, unreadable("the payload of the job", err)
		}
		return job, nil
	}
}

// Job returns a job as it was written.
func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return s.openJob(ctx)(s.Store.Job(ctx, namespace, id))
}

// DeletedJob returns a deleted job as it was written.
func (s *Store) DeletedJob(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return s.openJob(ctx)(s.Store.DeletedJob(ctx, namespace, id))
}

// ListJobs lists jobs as they were written. A payload that cannot be read does not keep a list
// from being shown: it is left out.
func (s *Store) ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page store.Page) (store.JobList, error) {
	list, err := s.Store.ListJobs(ctx, namespace, filter, page)
	for i := range list.Jobs {
		job := &list.Jobs[i]
		job.Payload, _ = s.openPayload(ctx, job.Namespace, job.ID, job.Payload)
	}
	return list, err
}

// Revisions lists revisions as they were written.
func (s *Store) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error) {
	list, err := s.Store.Revisions(ctx, namespace, id, before, limit)
	for i := 0; i < len(list) && err == nil; i++ {
		if list[i].Payload, err = s.openPayload(ctx, namespace, id, list[i].Payload); err != nil {
			err = unreadable("the payload of a revision", err)
		}
	}
	return list, err
}

// EditJob encrypts a payload that is edited. One that stays is not encrypted anew.
func (s *Store) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (belfry.Job, error) {
	key, err := s.sealKey(ctx, namespace) // before the transaction, see CreateJobs
	if err != nil {
		return belfry.Job{}, err
	}
	return s.openJob(ctx)(s.Store.EditJob(ctx, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		stored := job.Payload
		job, err := s.openJob(ctx)(job, nil)
		if err != nil {
			return nil, err
		}
		change, err := edit(job, p, now)
		if err != nil || change == nil {
			return change, err
		}
		sealed := *change
		if sealed.Job.Payload = stored; string(change.Job.Payload) != string(job.Payload) {
			sealed.Job.Payload, err = sealPayload(key, namespace, id, change.Job.Payload)
		}
		return &sealed, err
	}))
}
