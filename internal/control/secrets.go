package control

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/validate"
)

const (
	maxSecrets = 1000 // of a namespace
	maxUsers   = 5    // jobs that use a secret that are named
)

// Encryption encrypts what is stored with the newest keys, step by step.
type Encryption interface {
	Reencrypt(ctx context.Context, after string) (belfry.Reencryption, error)
}

// EncryptWith sets what encrypts stored secrets anew. It is called before any of that.
func (c *Control) EncryptWith(e Encryption) { c.encryption = e }

// Reencrypt makes one step of a pass over everything that is encrypted or should be.
func (c *Control) Reencrypt(ctx context.Context, after string) (belfry.Reencryption, error) {
	if c.encryption == nil {
		return belfry.Reencryption{}, belfry.Errorf(belfry.Conflict, "this server encrypts nothing; start it with --encryption-key-file")
	}
	if after == "" { // once for the pass
		if err := c.Audit(ctx, objectEntry(belfry.AuditRotate, belfry.AuditSecret, "", "", "*")); err != nil {
			return belfry.Reencryption{}, err
		}
	}
	return retryRead(ctx, "encrypt anew", func() (belfry.Reencryption, error) { return c.encryption.Reencrypt(ctx, after) })
}

// Secrets lists the secrets of a namespace by name, without their values.
func (c *Control) Secrets(ctx context.Context, namespace string) ([]belfry.Secret, error) {
	records, err := retryRead(ctx, "list secrets", func() ([]store.SecretRecord, error) { return c.store.ListSecrets(ctx, namespace) })
	list := make([]belfry.Secret, len(records))
	for i, r := range records {
		list[i] = c.shownSecret(r)
	}
	return list, err
}

// shownSecret is a secret that is safe to show.
func (c *Control) shownSecret(r store.SecretRecord) belfry.Secret {
	s := r.Secret
	if s.Value = ""; s.PreviousUntil != nil && !c.now().Before(*s.PreviousUntil) {
		s.PreviousUntil = nil
	}
	return s
}

// Secret finds a secret, without its value.
func (c *Control) Secret(ctx context.Context, namespace, name string) (belfry.Secret, error) {
	list, err := c.Secrets(ctx, namespace)
	if i := slices.IndexFunc(list, func(s belfry.Secret) bool { return s.Name == name }); i >= 0 || err != nil {
		return at(list, i), err
	}
	return belfry.Secret{}, store.NoSuchSecret(name)
}

var allowedHost = regexp.MustCompile(`^\*$|^(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?$|^[0-9a-f:]+$`)

// PutSecret creates a secret or changes it, and reports whether it was created. Without a value or
// allowed hosts it keeps those that it has.
func (c *Control) PutSecret(ctx context.Context, namespace string, s belfry.Secret) (saved belfry.Secret, created bool, err error) {
	var errors []belfry.FieldError
	for i, host := range s.AllowedHosts {
		if s.AllowedHosts[i] = strings.ToLower(host); !allowedHost.MatchString(s.AllowedHosts[i]) {
			errors = append(errors, belfry.FieldError{Field: "allowed_hosts", Message: "must be host names or addresses without port, or *. and a domain"})
		}
	}
	if len(s.Value) > belfry.MaxSecret {
		errors = append(errors, belfry.FieldError{Field: "value", Message: "has more than 65536 bytes"})
	}
	known, err := c.Secrets(ctx, namespace)
	if err != nil {
		return saved, false, err
	}
	i := slices.IndexFunc(known, func(o belfry.Secret) bool { return o.Name == s.Name })
	if created = i < 0; s.AllowedHosts == nil {
		s.AllowedHosts = at(known, i).AllowedHosts // A new value does not lift the limit.
	}
	if created && s.Value == "" {
		errors = append(errors, belfry.FieldError{Field: "value", Message: "is missing"})
	}
	if err := invalid("the secret is not valid", errors); err != nil {
		return saved, false, err
	}
	if created && len(known) >= maxSecrets {
		return saved, false, belfry.Errorf(belfry.Conflict, "the namespace has %d secrets, which is the most: delete one first", maxSecrets)
	}
	s.Namespace = namespace
	action := belfry.AuditEdit
	if created {
		action = belfry.AuditCreate
	}
	write, audit := c.audited(ctx, objectEntry(action, belfry.AuditSecret, namespace, "", s.Name))
	audit.SetChange(auditSecrets(at(known, i), s))
	record, err := retryRead(ctx, "save a secret", func() (store.SecretRecord, error) {
		r := store.SecretRecord{Secret: s}
		if s.Value == "" {
			stored, err := c.store.Secret(ctx, namespace, s.Name)
			if err != nil {
				return r, err
			}
			r.Value = stored.Value
		}
		return c.store.PutSecret(write, r, time.Duration(s.KeepPreviousSeconds)*time.Second)
	})
	return c.shownSecret(record), created, err
}

// auditSecrets is what changes of a secret, without any value.
func auditSecrets(before, after belfry.Secret) (_, _ []byte) {
	type shown struct {
		Value        string   `json:"value,omitempty"`
		AllowedHosts []string `json:"allowed_hosts,omitempty"`
	}
	old, new := shown{AllowedHosts: before.AllowedHosts}, shown{AllowedHosts: after.AllowedHosts}
	if after.Value != "" {
		new.Value = secret.Masked
	}
	return auditObject(&old, &new)
}

// DeleteSecret deletes a secret. One that jobs use is a Conflict, unless it is forced.
func (c *Control) DeleteSecret(ctx context.Context, namespace, name string, force bool) error {
	if _, err := c.Secret(ctx, namespace, name); err != nil {
		return err
	}
	if !force {
		users, err := c.secretUsers(ctx, namespace, name)
		if err != nil {
			return err
		}
		if users != nil {
			return belfry.Errorf(belfry.Conflict, "jobs use the secret %q: %s; edit them first, or force the deletion", name, strings.Join(users, ", "))
		}
	}
	ctx, _ = c.audited(ctx, objectEntry(belfry.AuditDelete, belfry.AuditSecret, namespace, "", name))
	return retryUnknown(ctx, "delete a secret", func() error { return c.store.DeleteSecret(ctx, namespace, name) })
}

func (c *Control) secretUsers(ctx context.Context, namespace, name string) (users []string, err error) {
	signing := `"sign_with":"` + name + `"`
	jobs, err := retryRead(ctx, "find the jobs of a secret", func() ([]store.TextJob, error) {
		return c.store.JobsWithText(ctx, namespace, [2]string{"{{%secret%" + name + "%", signing}, 100)
	})
	for _, job := range jobs {
		names, _ := secret.References(string(job.Payload))
		if !slices.Contains(names, name) && !strings.Contains(string(job.Payload), signing) {
			continue
		}
		if users = append(users, job.Name); job.Name == "" {
			users[len(users)-1] = job.ID.String()
		}
		if len(users) == maxUsers {
			return append(users, "…"), err
		}
	}
	return users, err
}

// checkSecrets returns an error if a job refers to secrets that its namespace does not have. Those
// that it has are read once, if read is where to keep them.
func (c *Control) checkSecrets(ctx context.Context, job belfry.Job, read *[]belfry.Secret) error {
	if job.Type != belfry.TypeHTTP || !secret.HasReference(job.Payload) && !bytes.Contains(job.Payload, []byte(`"sign`)) {
		return nil
	}
	payload, _ := target.ParseValidHTTP(job.Payload, true)
	fields, _ := target.References(payload)
	if read == nil {
		read = new([]belfry.Secret)
	}
	if *read == nil {
		known, err := c.Secrets(ctx, job.Namespace)
		if err != nil {
			return err
		}
		*read = known
	}
	var errors []belfry.FieldError
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		for _, name := range fields[field] {
			if !slices.ContainsFunc(*read, func(s belfry.Secret) bool { return s.Name == name }) {
				errors = append(errors, belfry.FieldError{Field: "payload." + field, Message: "refers to the secret " + name + ", which does not exist; create it with: belfry secret set " + name})
			}
		}
	}
	return invalidJob(errors)
}

// override is the payload of a run for which a request replaces that of its job. Secrets are for
// those who may write jobs: others can neither keep a masked one nor refer to one.
func (c *Control) override(ctx context.Context, job belfry.Job, payload json.RawMessage, message string) (json.RawMessage, error) {
	p := auth.Of(ctx)
	writes := p == nil || p.Has(auth.Write)
	if !writes && job.Type == belfry.TypeHTTP && secret.HasReference(payload) {
		return nil, invalid(message, []belfry.FieldError{{Field: "payload", Message: "refers to a secret, which needs the permission to write jobs"}})
	}
	whole, errors := validate.Payload(job, payload, writes)
	if err := invalid(message, errors); err != nil {
		return nil, err
	}
	job.Payload = whole
	return whole, c.checkSecrets(ctx, job, nil)
}
