package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/spf13/cobra"
)

// typing gives the command line a terminal at which somebody has typed a text.
func (p *testCLI) typing(text string) {
	p.t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		p.t.Skipf("there are no terminals here: %v", err)
	}
	number, locked := uint32(0), uint32(0)
	for request, value := range map[uintptr]*uint32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(value))); failed != 0 {
			p.t.Fatal(failed)
		}
	}
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		end.Close()
		person.Close()
	})
	if _, err := person.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
	p.stdin = end
}

func TestConfirmationAtATerminal(t *testing.T) {
	p := withServer(t)
	for _, name := range []string{"a", "b"} {
		p.ok("job", "create", "--name", name, "--schedule", "0 0 * * *", "--handler", "h", "--tag", "t")
	}
	for _, tt := range []struct {
		typed string
		args  []string
		said  string
		out   string
	}{
		{"n\n", []string{"job", "pause", "--tag", "t"}, "Pause 2 jobs? [y/N] Nothing was changed.\n", ""},
		{"y\n", []string{"job", "pause", "--tag", "t"}, "Pause 2 jobs? [y/N] ", "paused     2 jobs\n"},
		{"\n", []string{"job", "resume", "--status", "paused", "--catch-up"}, "Resume 2 jobs? [y/N] Nothing was changed.\n", ""},
		{"yes\n", []string{"job", "resume", "--status", "paused", "--catch-up"}, "Resume 2 jobs? [y/N] ", "resumed    2 jobs\n"},
		{"n\n", []string{"job", "retry", "--search", "A"}, "Retry the dead letters of 1 job? [y/N] Nothing was changed.\n", ""},
		{"n\n", []string{"job", "delete", "a", "b"}, "Delete a, b? [y/N] Nothing was changed.\n", ""},
		{"n\n", []string{"job", "backfill", "a", "--from", "24h"}, "Run a for 1 occurrence? [y/N] Nothing was changed.\n", ""},
		{"y\n", []string{"job", "backfill", "a", "--from", "24h"}, "Run a for 1 occurrence? [y/N] ", "backfilled  a   1 run, 20"},
		{"y\n", []string{"job", "backfill", "a", "--from", "0s"}, "Nothing to run: the schedule of a has no occurrence in that span.\n", ""},
		{"n\n", []string{"dead", "discard", "01890a5d-ac96-774b-bcce-b302099a8057"}, "Discard 01890a5d-ac96-774b-bcce-b302099a8057? [y/N] Nothing was changed.\n", ""},
		{"n\n", []string{"dead", "redrive", "--all"}, "No dead letters.\n", ""},
		{"y\n", []string{"job", "delete", "--all", "--history", "delete"}, "Delete 2 jobs? [y/N] ", "deleted    2 jobs\n"},
	} {
		p.typing(tt.typed)
		r, code := p.run(tt.args...), exitOK
		if strings.HasSuffix(tt.said, "Nothing was changed.\n") {
			code = exitOther
		}
		said := r.err[max(0, len(r.err)-len(tt.said)):]
		if r.code != code || said != tt.said || r.out[:min(len(r.out), len(tt.out))] != tt.out || tt.out == "" && r.out != "" {
			t.Errorf("%q: it printed %+v, want code %d, %q and %q", tt.args, r, code, tt.said, tt.out)
		}
	}
}

func TestLongTextsAreCutOnlyOnATerminal(t *testing.T) {
	p := withServer(t)
	address := "https://example.com/" + strings.Repeat("long/", 60)
	p.ok("job", "create", "a", "--schedule", "@yearly", "--url", address)
	if r := p.ok("job", "list"); !strings.Contains(r.out, "POST "+address+" ") {
		t.Errorf("the table has\n%s", r.out)
	}
	file := p.file("a.yaml", "name: b\nschedule: '@yearly'\npayload: {url: '"+address+"'}\n")
	if r := p.ok("job", "apply", "-f", file, "--dry-run"); !strings.Contains(r.out, `"`+address+`"`) {
		t.Errorf("the dry run has\n%s", r.out)
	}
	p.typing("")
	cmd := &cobra.Command{}
	cmd.SetOut(p.stdin.(*os.File))
	for format, want := range map[string]int{"table": columnWidth, "wide": len(address)} {
		if o := newOutput(cmd, format, false); utf8.RuneCountInString(o.clip(address)) != want {
			t.Errorf("on a terminal the %s has %q", format, o.clip(address))
		}
	}
}

func TestSecretIsTypedWithoutEcho(t *testing.T) {
	p := withServer(t)
	p.typing("canary-typed\n")
	if r := p.ok("secret", "set", "typed"); !strings.HasPrefix(r.err[strings.Index(r.err, "Value"):], "Value of typed: \nSaved typed.\n") {
		t.Errorf("it printed %+v", r)
	}
	var settings syscall.Termios
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, p.stdin.(*os.File).Fd(), syscall.TCGETS, uintptr(unsafe.Pointer(&settings))); failed != 0 || settings.Lflag&syscall.ECHO == 0 {
		t.Errorf("the terminal does not echo afterwards: %v", failed)
	}
}
