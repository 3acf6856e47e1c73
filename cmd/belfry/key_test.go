package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestKeyCommands(t *testing.T) {
	p := withServer(t)
	find := regexp.MustCompile(`bf_[a-z0-9]{8}_[0-9A-Za-z]{49}`)
	if r := p.run("key", "create", "--role", "reader"); r.code == 0 || !strings.Contains(r.err, "nobody could create others") {
		t.Errorf("a reader as the first key: %+v", r)
	}
	first := p.ok("key", "create", "--role", "admin", "--name", "ops", "--expires", "never").out
	if !strings.Contains(first, "requires a key for everything") || !strings.Contains(first, "export BELFRY_KEY="+find.FindString(first)) {
		t.Errorf("the first key: %s", first)
	}
	if r := p.run("key", "list"); r.code != exitNotAllowed || !strings.Contains(r.err, "BELFRY_KEY") {
		t.Errorf("without the key: %+v", r)
	}
	t.Setenv("BELFRY_KEY", find.FindString(first))
	second := p.ok("key", "create", "--role", "worker", "--namespace", "billing", "--namespace", "ops", "--queue", "q", "--name", "w", "--expires", "30d").out
	if !strings.Contains(second, "worker, billing,ops") || strings.Contains(second, "from now on") {
		t.Errorf("the second key: %s", second)
	}
	commands := find.FindString(p.ok("key", "create", "--role", "author", "--commands").out)
	id := commands[3:11]
	rotated := find.FindString(p.ok("key", "rotate", id, "--overlap", "1h").out)
	p.ok("key", "revoke", rotated[3:11], id)
	list := p.ok("key", "list", "-o", "wide").out
	for _, want := range []string{"ID +NAME +STATUS +ROLE +NAMESPACES +CREATED +EXPIRES +LAST USED +QUEUES", `ops +active +admin +all namespaces +\S+ +never`, `w +active +worker +billing,ops +\S+ +in 29d`, `revoked +author .* yes +ops`, rotated[3:11]} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("the list does not have %s:\n%s", want, list)
		}
	}
	if find.MatchString(list) {
		t.Errorf("the list has a key:\n%s", list)
	}
	for _, args := range [][]string{{"key", "create", "--role", "boss"}, {"key", "create", "--role", "reader", "--expires", "soon"}, {"key", "revoke", "none"}, {"key", "rotate", id}} {
		if r := p.run(args...); r.code == 0 || r.err == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestTheBootstrapKeyIsPrintedOnce(t *testing.T) {
	var text, lines strings.Builder
	printBootstrapKey(&text, "bf_x", false)
	printBootstrapKey(&lines, "bf_x", true)
	printBootstrapKey(&lines, "", true)
	if !strings.Contains(text.String(), "export BELFRY_KEY=bf_x\n") || lines.String() != "{\"bootstrap_key\":\"bf_x\"}\n" {
		t.Errorf("%q, %q", text.String(), lines.String())
	}
}
