package servertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SQS starts an emulator of Amazon SQS at http://Addr, which accepts any credentials, with queues
// in the region us-east-1. It keeps messages in memory: after Kill and Start the queues are there again, and empty. A queue whose
// name ends in .fifo is a FIFO queue.
func SQS(tb testing.TB, queues ...string) *Server {
	tb.Helper()
	node := program(tb, "node", "nodejs npm")
	emulator := npmFile(tb, "sqs", "fauxqs/dist/cli.js")
	type queue struct {
		Name       string            `json:"name"`
		Attributes map[string]string `json:"attributes,omitempty"`
	}
	var created []queue
	for _, name := range queues {
		q := queue{Name: name}
		if strings.HasSuffix(name, ".fifo") {
			q.Attributes = map[string]string{"FifoQueue": "true"}
		}
		created = append(created, q)
	}
	init := filepath.Join(tb.TempDir(), "queues.json")
	text, err := json.Marshal(map[string]any{"queues": created})
	if err == nil {
		err = os.WriteFile(init, text, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, accepts, []string{"FAUXQS_PORT={port}", fmt.Sprintf("FAUXQS_INIT=%s", init)}, node, emulator)
}
