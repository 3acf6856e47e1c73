package broker

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/servertest"
)

// namedSecrets is a source of secrets whose values change.
type namedSecrets struct {
	mu     sync.Mutex
	values map[string]string // by namespace/name
}

func (s *namedSecrets) set(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = value
}

func (s *namedSecrets) Secret(_ context.Context, namespace, name string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found := s.values[namespace+"/"+name]
	if !found {
		return nil, belfry.Errorf(belfry.NotFound, "there is no secret %q", name)
	}
	return []string{value, "the value before"}, nil
}

// A password that is a named secret is looked up by the attempt that connects: what is missing or
// wrong is an error that says so, and is used without a restart once it is right.
func TestPasswordsThatAreSecrets(t *testing.T) {
	server := servertest.Redis(t, "--requirepass", "right-password")
	declared := checked(t, Connection{URL: "redis://" + server.Addr, PasswordSecret: "billing/redis"})
	secrets := &namedSecrets{values: map[string]string{"default/redis": "right-password"}}
	publish := func(c *Connections) (*belfry.Run, error) {
		run := &belfry.Run{ID: belfry.NewID(time.Now()), JobID: belfry.NewID(time.Now()), Attempt: 1, ScheduledAt: time.Now(),
			Payload: belfry.MustJSON(belfry.MessagePayload{Connection: "orders", Topic: "invoices", Body: []byte(`{"n":1}`)})}
		return run, c.Handle(t.Context(), run)
	}
	connections := func() *Connections {
		c := &Connections{declared: map[string]Connection{"orders": declared}}
		t.Cleanup(c.Close)
		return c
	}
	if _, err := publish(connections()); err == nil || !strings.Contains(err.Error(), "publish to orders: the secret billing/redis cannot be used here") {
		t.Errorf("without secrets: %v", err)
	}
	c := connections()
	c.UseSecrets(secrets)
	if _, err := publish(c); err == nil || !strings.Contains(err.Error(), `publish to orders: the secret billing/redis cannot be read: there is no secret "redis"`) {
		t.Errorf("a missing secret, which another namespace has: %v", err)
	}
	secrets.set("billing/redis", "wrong-password")
	if run, err := publish(c); err == nil || !strings.Contains(err.Error(), "connect to Redis") || len(run.Report.Secrets) != 1 || run.Report.Secrets[0] != "wrong-password" {
		t.Errorf("a wrong password: %v, masked is %q", err, run.Report.Secrets)
	}
	secrets.set("billing/redis", "right-password")
	if _, err := publish(c); err != nil {
		t.Errorf("the right password: %v", err)
	}
	for _, with := range []Connection{{PasswordFile: secretFile(t, "x")}, {PasswordEnv: "HOME"}} {
		with.URL, with.PasswordSecret = declared.URL, declared.PasswordSecret
		if _, errors := New(with); len(errors) != 1 || errors[0].Field != "password_secret" {
			t.Errorf("two passwords: %v", errors)
		}
	}
}
