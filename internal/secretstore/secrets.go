package secretstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/cache"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
)

// errNoKey is the error of a secret that cannot be encrypted.
var errNoKey = belfry.Errorf(belfry.Conflict, "this server has no key to encrypt secrets with; start all nodes with --encryption-key-file, a file that has the output of: openssl rand -base64 32")

// PutSecret encrypts the value of a secret. The value that it has is not encrypted anew, so that
// the call can be repeated.
func (s *Store) PutSecret(ctx context.Context, r store.SecretRecord, keep time.Duration) (store.SecretRecord, error) {
	if s.keys == nil {
		return r, errNoKey
	}
	stored, err := s.Store.Secret(ctx, r.Namespace, r.Name)
	if err != nil && belfry.CodeOf(err) != belfry.NotFound {
		return r, err
	}
	value := r.Value
	if err == nil {
		current, err := s.openSecret(ctx, stored)
		if err == nil && current.Value == value {
			r.Value = stored.Value
		}
	}
	if r.Value == value {
		key, err := s.sealKey(ctx, r.Namespace)
		if err != nil {
			return r, err
		}
		r.Value = key.Seal([]byte(value), r.Namespace, "secret", r.Name)
	}
	saved, err := s.Store.PutSecret(ctx, r, keep)
	if err != nil {
		return saved, err
	}
	return s.openSecret(ctx, saved)
}

func (s *Store) openSecret(ctx context.Context, r store.SecretRecord) (store.SecretRecord, error) {
	for _, text := range []*string{&r.Value, &r.Previous} {
		if *text == "" {
			continue
		}
		value, err := s.open(ctx, *text, r.Namespace, "secret", r.Name)
		if err != nil {
			return store.SecretRecord{}, unreadable("the secret "+r.Name, err)
		}
		*text = string(value)
	}
	return r, nil
}

// Secret returns a secret with its values.
func (s *Store) Secret(ctx context.Context, namespace, name string) (store.SecretRecord, error) {
	r, err := s.Store.Secret(ctx, namespace, name)
	if err != nil {
		return r, err
	}
	return s.openSecret(ctx, r)
}

// ListSecrets lists secrets without their values.
func (s *Store) ListSecrets(ctx context.Context, namespace string) ([]store.SecretRecord, error) {
	list, err := s.Store.ListSecrets(ctx, namespace)
	for i := range list {
		list[i].Value, list[i].Previous = "", ""
	}
	return list, err
}

// channelTexts are the texts of a channel that are encrypted, with the names of their fields.
func channelTexts(c *belfry.Channel) map[string]*string {
	return map[string]*string{"url": &c.URL, "secret": &c.Secret}
}

func (s *Store) sealChannel(key *encrypt.DataKey, c belfry.Channel) belfry.Channel {
	for field, text := range channelTexts(&c) {
		if *text != "" && key != nil {
			*text = key.Seal([]byte(*text), c.Namespace, "channel", c.Name, field)
		}
	}
	return c
}

func (s *Store) openChannel(ctx context.Context, c belfry.Channel) (belfry.Channel, error) {
	for field, text := range channelTexts(&c) {
		if _, sealed := encrypt.Version(*text); !sealed {
			continue
		}
		value, err := s.open(ctx, *text, c.Namespace, "channel", c.Name, field)
		if err != nil {
			return belfry.Channel{}, unreadable("the channel "+c.Name, err)
		}
		*text = string(value)
	}
	return c, nil
}

// PutChannel encrypts the address and the secret of a channel. What it has is not encrypted anew.
func (s *Store) PutChannel(ctx context.Context, c belfry.Channel) (belfry.Channel, error) {
	key, err := s.sealKey(ctx, c.Namespace)
	if err != nil {
		return c, err
	}
	sealed := s.sealChannel(key, c)
	stored, err := s.Store.Channels(ctx, c.Namespace)
	if err != nil {
		return c, err
	}
	if i := slices.IndexFunc(stored, func(o belfry.Channel) bool { return o.Name == c.Name }); i >= 0 && key != nil {
		current, err := s.openChannel(ctx, stored[i])
		if err == nil && current.URL == c.URL && stored[i].URL != c.URL {
			sealed.URL = stored[i].URL
		}
		if err == nil && current.Secret == c.Secret && stored[i].Secret != c.Secret {
			sealed.Secret = stored[i].Secret
		}
	}
	saved, err := s.Store.PutChannel(ctx, sealed)
	if err != nil {
		return saved, err
	}
	return s.openChannel(ctx, saved)
}

// Channels lists channels as they were written.
func (s *Store) Channels(ctx context.Context, namespace string) ([]belfry.Channel, error) {
	list, err := s.Store.Channels(ctx, namespace)
	for i := 0; i < len(list) && err == nil; i++ {
		list[i], err = s.openChannel(ctx, list[i])
	}
	return list, err
}

// valueLifetime is how long a node uses a value that it has read.
const valueLifetime = 5 * time.Second

// Source has the values of named secrets. It reads each of them once in five seconds.
type Source struct {
	store Secrets
	cache cache.Cache[[2]string, store.SecretRecord]
}

// Secrets is what a source needs of a store.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (store.SecretRecord, error)
	store.Clock
}

var _ secret.Source = (*Source)(nil)

// NewSource has the secrets of a store.
func NewSource(s Secrets) *Source { return &Source{store: s} }

// Lookup returns a secret; NotFound if there is none.
func (s *Source) Lookup(ctx context.Context, namespace, name string) (found secret.Named, err error) {
	r, err := s.cache.Get(ctx, [2]string{namespace, name}, valueLifetime, func(ctx context.Context) (store.SecretRecord, error) {
		return s.store.Secret(ctx, namespace, name)
	})
	if err != nil {
		return found, err
	}
	found = secret.Named{Values: []string{r.Value}, AllowedHosts: r.AllowedHosts}
	if r.Previous != "" && r.PreviousUntil != nil && s.store.Now().Before(*r.PreviousUntil) {
		found.Values = append(found.Values, r.Previous)
	}
	return found, nil
}

// Secret returns the values of a secret.
func (s *Source) Secret(ctx context.Context, namespace, name string) ([]string, error) {
	found, err := s.Lookup(ctx, namespace, name)
	return found.Values, err
}

// stepRows is how many rows a step reads.
const stepRows = 300

// Reencrypt makes one step of a pass over everything that is encrypted or should be. The first
// step reads the file of keys again and encrypts the data keys with its first key, after which
// other keys are not needed. A namespace whose data key another key encrypted gets a new one. The
// others encrypt values with the newest data key of their namespace. A pass may be repeated and
// given up at any step.
func (s *Store) Reencrypt(ctx context.Context, after string) (out belfry.Reencryption, err error) {
	if s.keys == nil {
		return out, errNoKey
	}
	place, err := parsePlace(after)
	if err == nil && after == "" {
		err = s.rewrap(ctx)
	}
	if err != nil {
		return out, err
	}
	texts, err := s.EncryptedTexts(ctx, place, stepRows)
	if err != nil {
		return out, err
	}
	var changed []store.EncryptedText
	var by []string
	for _, text := range texts {
		sealed, err := s.reseal(ctx, text)
		switch {
		case isUnreadable(err):
			out.Failed++
		case err != nil:
			return out, err
		case sealed != text.Text:
			changed, by = append(changed, text), append(by, sealed)
		}
	}
	if changed != nil {
		if out.Changed, err = s.ReplaceTexts(ctx, changed, by); err != nil {
			return out, err
		}
	}
	out.Read = len(texts)
	if len(texts) == stepRows {
		out.After = placeText(texts[len(texts)-1].TextPlace)
	} else if i := slices.Index(store.TextTables, place.Table) + 1; i < len(store.TextTables) {
		out.After = placeText(store.TextPlace{Table: store.TextTables[i]})
	} else {
		err = s.rewrap(ctx) // namespaces that were new meanwhile
	}
	return out, err
}

// rewrap encrypts all data keys with the first key of the file.
func (s *Store) rewrap(ctx context.Context) error {
	if err := s.keys.Reload(); err != nil {
		return belfry.Errorf(belfry.Conflict, "--encryption-key-file: %w", err)
	}
	rows, err := s.DataKeys(ctx, "")
	if err != nil {
		return err
	}
	for i, row := range rows {
		if row.KeyID == s.keys.Current() {
			continue
		}
		raw, err := s.unwrap(row)
		if err != nil {
			return unreadable("a data key", err)
		}
		if i+1 == len(rows) || rows[i+1].Namespace != row.Namespace { // the latest of its namespace
			if err := s.SaveDataKeys(ctx, "", []store.DataKey{s.wrap(row.Namespace, row.Version+1, encrypt.NewDataKey())}); err != nil {
				return err
			}
		}
		if err := s.SaveDataKeys(ctx, row.KeyID, []store.DataKey{s.wrap(row.Namespace, row.Version, raw)}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
	return nil
}

// reseal is a text encrypted with the newest data key; the same if it is already.
func (s *Store) reseal(ctx context.Context, text store.EncryptedText) (string, error) {
	if text.Namespace == "" {
		return text.Text, nil // the revision of a job that is gone
	}
	var opened string
	var seal func(*encrypt.DataKey) string
	switch text.Table {
	case "channels":
		var sealed belfry.Channel
		if json.Unmarshal([]byte(text.Text), &sealed) != nil {
			return "", encrypt.ErrAltered
		}
		sealed.Namespace, sealed.Name = text.Namespace, text.Name
		c, err := s.openChannel(ctx, sealed)
		if err != nil {
			return "", encrypt.ErrAltered
		}
		opened, seal = store.ChannelSpec(c), func(key *encrypt.DataKey) string { return store.ChannelSpec(s.sealChannel(key, c)) }
	case "secrets":
		value, err := s.open(ctx, text.Text, text.Namespace, "secret", text.Name)
		if err != nil {
			return "", err
		}
		opened, seal = string(value), func(key *encrypt.DataKey) string { return key.Seal(value, text.Namespace, "secret", text.Name) }
	default:
		payload, err := s.openPayload(ctx, text.Namespace, text.JobID, json.RawMessage(text.Text))
		if err != nil {
			return "", err
		}
		if string(payload) == text.Text && string(secret.Seal(payload, encrypt.Prefix, func([]byte) string { return "" })) == text.Text {
			return text.Text, nil // there are no secrets in it
		}
		opened, seal = string(payload), func(key *encrypt.DataKey) string {
			sealed, _ := sealPayload(key, text.Namespace, text.JobID, payload)
			return string(sealed)
		}
	}
	key, err := s.sealKey(ctx, text.Namespace)
	if err != nil {
		return "", err
	}
	sealed := seal(key)
	newest := encrypt.Prefix + strconv.Itoa(key.Version) + ":"
	if opened != text.Text && strings.Count(text.Text, newest) == strings.Count(sealed, newest) {
		return text.Text, nil
	}
	return sealed, nil
}

// placeText is a place as text. Names have no blanks.
func placeText(p store.TextPlace) string {
	return fmt.Sprintf("%s %s %d %s %s", p.Table, p.ID, p.Revision, p.Namespace, p.Name)
}

func parsePlace(text string) (p store.TextPlace, err error) {
	if text == "" {
		return store.TextPlace{Table: store.TextTables[0]}, nil
	}
	parts := strings.Split(text, " ")
	if len(parts) == 5 && slices.Contains(store.TextTables, parts[0]) {
		p = store.TextPlace{Table: parts[0], Namespace: parts[3], Name: parts[4]}
		if p.ID, err = belfry.ParseID(parts[1]); err == nil {
			p.Revision, err = strconv.Atoi(parts[2])
		}
	}
	if p.Table == "" || err != nil {
		return p, &belfry.Error{Code: belfry.Invalid, Message: "the request is not valid", Fields: []belfry.FieldError{{Field: "after", Message: "is not what an earlier step answered"}}}
	}
	return p, nil
}
