//go:build unix

package chaos

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// envVictim makes the test binary start a node and wait to be killed, as a child
// of the real one. Its value is the folder for the node's data.
const envVictim = "BELFRY_TEST_CHAOS_VICTIM"

// runVictim starts a node and prints its address.
func runVictim() {
	n := onSQLite(&bystander{}, os.Getenv(envVictim))
	fmt.Println("node", n.address())
	select {}
}

// bystander is a test that only knows how to give up.
type bystander struct{ testing.TB }

func (*bystander) Helper()        {}
func (*bystander) Cleanup(func()) {}
func (*bystander) Errorf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
}
func (*bystander) Fatalf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
	os.Exit(1)
}
func (b *bystander) Fatal(args ...any) { b.Fatalf("%s", fmt.Sprint(args...)) }

func TestNoProcessOutlivesTheTests(t *testing.T) {
	binary, err := belfryBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = environment(envVictim+"="+t.TempDir(), envBinary+"="+binary)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	base, found := strings.CutPrefix(strings.TrimSpace(line), "node ")
	if !found {
		t.Fatalf("the child said %q (%v)", line, err)
	}
	if !alive(base, 5*time.Second) {
		t.Fatal("the node of the child does not answer")
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the node goes after the tests that started it", time.Minute, func() bool { return !alive(base, 5*time.Second) })
}

// alive reports whether a node answers within the time.
func alive(base string, within time.Duration) bool {
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(base + "/livez")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
