package secretstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

const canary = "cAnArYq7Zx9LmP2vR8tK4wY6sB3nD5"

// payload is full of what JSON may be written like, which must come back as it was.
const payload = `{"url":"https://h.example/?token=` + canary + `&a=\u00e9","headers":{"Authorization":"Bearer ` + canary + `","X-Key":"{{secret \"key\"}}","Accept":"*/*"},` +
	`"body":{"password":"` + canary + `","credentials":{"pin":[1.50,"` + canary + `"]},"text":"{\"token\" :  \"` + canary + `\"}","literal":"enc:v1:1:abc","odd":"\ud800\u003c","token":null,"token":"a {{secret key}}"}}`

func create(t *testing.T, s store.Store, namespace, name string, payloads ...string) belfry.ID {
	t.Helper()
	payload := strings.Join(append(payloads, payload)[:1], "")
	job, err := control.New(s, plan.Defaults{}).Create(t.Context(), namespace, validate.Input{Manifest: belfry.Manifest{
		Name: name, Spec: belfry.Spec{Type: belfry.TypeWorker, Handler: "work", Schedule: "@yearly"}, Payload: json.RawMessage(payload)}}, control.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return job.ID
}

func payloadOf(t *testing.T, s store.Store, namespace string, id belfry.ID) string {
	t.Helper()
	job, err := s.Job(t.Context(), namespace, id)
	if err != nil {
		t.Fatal(err)
	}
	return string(job.Payload)
}

// texts reads everything that is encrypted, as it is stored.
func texts(t *testing.T, raw store.Store) (all []store.EncryptedText) {
	t.Helper()
	for _, table := range store.TextTables {
		list, err := raw.EncryptedTexts(t.Context(), store.TextPlace{Table: table}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
	}
	return all
}

// fill writes secrets wherever the store keeps them.
func fill(t *testing.T, s store.Store) belfry.ID {
	t.Helper()
	id := create(t, s, "ours", "job")
	c := control.New(s, plan.Defaults{})
	if _, err := c.Edit(t.Context(), "ours", "job", "", func(m belfry.Manifest) validate.Input {
		m.Payload = json.RawMessage(strings.Replace(payload, "*/*", "text/plain", 1))
		return validate.Input{Manifest: m}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trigger(t.Context(), "ours", "job", belfry.Trigger{Payload: json.RawMessage(`{"token":"` + canary + `"}`)}, control.Key{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutChannel(t.Context(), belfry.Channel{Namespace: "ours", Name: "oncall", Type: belfry.ChannelWebhook, URL: "https://h.example/" + canary, Secret: canary}); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestNothingIsStoredInTheClear(t *testing.T) {
	eachStore(t, func(t *testing.T, raw store.Store) {
		keys, _ := newKeys(t)
		s := open(t, raw, keys)
		id := fill(t, s)
		put(t, s, "ours", "key", canary, 0)
		put(t, s, "ours", "key", canary+"2", time.Hour)
		tables := map[string]bool{}
		for _, text := range texts(t, raw) {
			tables[text.Table] = true
			if strings.Contains(text.Text, canary) || !strings.Contains(text.Text, encrypt.Prefix) {
				t.Errorf("%s has %s", text.Table, text.Text)
			}
		}
		for _, table := range []string{"jobs", "revisions", "triggers", "channels", "secrets"} {
			if !tables[table] {
				t.Errorf("%s has nothing", table)
			}
		}
		if got := payloadOf(t, s, "ours", id); got != strings.Replace(payload, "*/*", "text/plain", 1) {
			t.Errorf("got  %s\nwant %s", got, payload)
		}
		if revisions, err := s.Revisions(t.Context(), "ours", id, 0, 1); err != nil || string(revisions[0].Payload) != payload {
			t.Errorf("the revision is %s, %v", revisions[0].Payload, err)
		}
		channels, err := s.Channels(t.Context(), "ours")
		if err != nil || channels[0].URL != "https://h.example/"+canary || channels[0].Secret != canary {
			t.Errorf("the channels are %+v, %v", channels, err)
		}
		again, err := s.PutChannel(t.Context(), belfry.Channel{Namespace: "ours", Name: "oncall", Type: belfry.ChannelWebhook, URL: "https://h.example/" + canary, Secret: canary})
		if err != nil || !again.UpdatedAt.Equal(channels[0].UpdatedAt) {
			t.Errorf("the same channel is another after a second put: %+v, %v", again, err)
		}
		// A secret that is only referred to is not hidden, and found in what is.
		if jobs, err := raw.JobsWithText(t.Context(), "ours", [2]string{"{{%secret%key", "none"}, 10); err != nil || len(jobs) != 1 || !strings.Contains(string(jobs[0].Payload), `"X-Key":"{{secret \"key\"}}"`) {
			t.Errorf("jobs that use the secret: %s, %v", jobs, err)
		}
	})
}

// A sequence of new jobs may be a stream, which can be read only once.
func TestNewJobsAreReadOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, raw store.Store) {
		keys, _ := newKeys(t)
		s := open(t, raw, keys)
		var ids []belfry.ID
		passes := 0
		err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
			passes++
			for _, namespace := range []string{"ours", "theirs"} {
				id, spec := belfry.NewID(s.Now()), belfry.DefaultSpec()
				spec.Type, spec.Handler, spec.Schedule = belfry.TypeWorker, "work", "@yearly"
				ids = append(ids, id)
				job := belfry.Job{ID: id, Namespace: namespace, Revision: 1, State: belfry.JobActive, CreatedAt: s.Now(),
					Manifest: belfry.Manifest{Spec: spec, Payload: json.RawMessage(payload)}}
				if !yield(store.NewJob{Job: job, Plan: plan.Plan{JobID: id, Shard: belfry.ShardOf(id, s.Shards())}}, nil) {
					return
				}
			}
		}, nil)
		if err != nil || passes != 1 {
			t.Fatalf("%d passes over the new jobs, %v", passes, err)
		}
		for i, namespace := range []string{"ours", "theirs"} {
			if got := payloadOf(t, s, namespace, ids[i]); got != payload {
				t.Errorf("the payload of the job in %s is %s", namespace, got)
			}
			if stored := payloadOf(t, raw, namespace, ids[i]); strings.Contains(stored, canary) {
				t.Errorf("the payload in %s is stored as %s", namespace, stored)
			}
		}
	})
}

// What is encrypted for one thing is of no use for another.
func TestEncryptedValuesCannotBeMoved(t *testing.T) {
	eachStore(t, func(t *testing.T, raw store.Store) {
		keys, _ := newKeys(t)
		s := open(t, raw, keys)
		one, other, elsewhere := create(t, s, "ours", "one"), create(t, s, "ours", "other"), create(t, s, "theirs", "one")
		put(t, s, "ours", "one", canary, 0)
		put(t, s, "ours", "other", canary, 0)
		put(t, s, "theirs", "one", canary, 0)
		stored := texts(t, raw)
		swap := func(from, to func(store.EncryptedText) bool) {
			t.Helper()
			var a, b store.EncryptedText
			for _, text := range stored {
				if from(text) {
					a = text
				}
				if to(text) {
					b = text
				}
			}
			if n, err := raw.ReplaceTexts(t.Context(), []store.EncryptedText{b}, []string{a.Text}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		job := func(id belfry.ID) func(store.EncryptedText) bool {
			return func(e store.EncryptedText) bool { return e.Table == "jobs" && e.ID == id }
		}
		secret := func(namespace, name string) func(store.EncryptedText) bool {
			return func(e store.EncryptedText) bool {
				return e.Table == "secrets" && e.Namespace == namespace && e.Name == name
			}
		}
		swap(job(one), job(other))
		swap(job(one), job(elsewhere))
		swap(secret("ours", "one"), secret("ours", "other"))
		swap(secret("ours", "one"), secret("theirs", "one"))
		for namespace, id := range map[string]belfry.ID{"ours": other, "theirs": elsewhere} {
			if job, err := s.Job(t.Context(), namespace, id); err == nil || strings.Contains(string(job.Payload), canary) {
				t.Errorf("a payload was moved to %s: %v", namespace, err)
			}
		}
		for _, place := range [][2]string{{"ours", "other"}, {"theirs", "one"}} {
			if r, err := s.Secret(t.Context(), place[0], place[1]); err == nil {
				t.Errorf("a secret was moved to %s: %+v", place, r)
			}
		}
		if got := payloadOf(t, s, "ours", one); got != payload {
			t.Errorf("the one that was not touched is %s", got)
		}
	})
}

func TestWrongKeyIsRefused(t *testing.T) {
	onSQLite(t, func(t *testing.T, raw store.Store) {
		keys, _ := newKeys(t)
		other, _ := newKeys(t)
		open(t, raw, nil)
		s := open(t, raw, nil)
		if _, err := s.PutSecret(t.Context(), store.SecretRecord{Secret: belfry.Secret{Namespace: "ours", Name: "key", Value: canary}}, 0); belfry.CodeOf(err) != belfry.Conflict || !strings.Contains(err.Error(), "--encryption-key-file") {
			t.Errorf("a secret without a key: %v", err)
		}
		create(t, open(t, raw, keys), "ours", "job")
		for name, keys := range map[string]*encrypt.Keys{"--encryption-key-file": nil, "which is not in": other} {
			if _, err := New(t.Context(), raw, keys); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want %s", err, name)
			}
		}
		open(t, raw, keys)
	})
}

// reencrypt makes a whole pass.
func reencrypt(t *testing.T, s *Store) (total belfry.Reencryption) {
	t.Helper()
	for {
		step, err := s.Reencrypt(t.Context(), total.After)
		if err != nil {
			t.Fatal(err)
		}
		total.After, total.Changed, total.Failed = step.After, total.Changed+step.Changed, total.Failed+step.Failed
		if step.After == "" {
			return total
		}
	}
}

func TestKeysAreRotatedWhileOthersRead(t *testing.T) {
	eachStore(t, func(t *testing.T, raw store.Store) {
		plain := open(t, raw, nil) // as a server without a key stored it
		var ids []belfry.ID
		ids = append(ids, create(t, plain, "ours", "clear", `{"token":"`+canary+`"}`))
		keys, path := newKeys(t)
		s := open(t, raw, keys)
		other := open(t, raw, func() *encrypt.Keys { k, _ := encrypt.LoadKeys(path); return k }())
		ids = append(ids, fill(t, s))
		put(t, s, "ours", "key", canary, 0)
		want := map[belfry.ID]string{}
		for _, id := range ids {
			want[id] = payloadOf(t, s, "ours", id)
		}
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		raw32 := encrypt.NewDataKey()
		line := base64.StdEncoding.EncodeToString(raw32) + "\n"
		if err := os.WriteFile(path, append([]byte(line), old...), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		reader := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				for id, payload := range want {
					job, err := other.Job(context.WithoutCancel(ctx), "ours", id)
					if err == nil && string(job.Payload) != payload {
						err = fmt.Errorf("the payload is %s", job.Payload)
					}
					if err == nil {
						_, err = other.PutSecret(context.WithoutCancel(ctx), store.SecretRecord{Secret: belfry.Secret{Namespace: "ours", Name: "busy", Value: canary}}, 0)
					}
					if err != nil {
						reader <- err
						return
					}
				}
			}
			reader <- nil
		}()
		if total := reencrypt(t, s); total.Changed < 6 || total.Failed > 0 {
			t.Errorf("the pass did %+v", total)
		}
		stop()
		if err := <-reader; err != nil {
			t.Errorf("while keys are rotated: %v", err)
		}
		if total := reencrypt(t, s); total.Changed > 1 { // what the other one wrote meanwhile
			t.Errorf("a second pass did %+v", total)
		}
		if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		newOnly, err := encrypt.LoadKeys(path)
		if err != nil {
			t.Fatal(err)
		}
		last := open(t, raw, newOnly)
		for id, payload := range want {
			if got := payloadOf(t, last, "ours", id); got != payload {
				t.Errorf("got %s", got)
			}
		}
		for _, text := range texts(t, raw) {
			if strings.Contains(text.Text, canary) || strings.Contains(text.Text, encrypt.Prefix+"1:") {
				t.Errorf("%s still has %s", text.Table, text.Text)
			}
		}
	})
}

// The attempt of a run whose payload was changed in the database fails, and nobody gets it.
func TestRunWithAnAlteredPayloadFails(t *testing.T) {
	onSQLite(t, func(t *testing.T, raw store.Store) {
		keys, _ := newKeys(t)
		s := open(t, raw, keys)
		id, at := create(t, s, "ours", "job"), s.Now()
		runs := []*belfry.Run{{ID: belfry.NewID(at), JobID: id, Namespace: "ours", Attempt: 1, Token: belfry.NewToken(), Payload: json.RawMessage(`{"token":"enc:v1:1:AAAA"}`)},
			{ID: belfry.NewID(at), JobID: id, Namespace: "ours", Attempt: 1, Token: belfry.NewToken(), Payload: json.RawMessage(`{"a":1}`)}}
		got, err := s.openRuns(t.Context())(runs, nil)
		if err != nil || len(got) != 1 || string(got[0].Payload) != `{"a":1}` {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
