package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Ordinary clients send a request to its end before they read the response, which must not
// get lost because the body was refused.
func TestRefusedBodyIsReadToItsEnd(t *testing.T) {
	s := newService(t)
	server := s.listen(nil)
	body := bytes.Repeat([]byte(" "), 20<<20)
	for _, tt := range []struct {
		head string
		want int
	}{
		{"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n", http.StatusRequestEntityTooLarge},
		{"POST /api/v1/workers/" + unknownID + "/finish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n", http.StatusRequestEntityTooLarge},
		{"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n", http.StatusUnsupportedMediaType},
		{"POST /api/v1/nothing HTTP/1.1\r\nHost: localhost\r\n", http.StatusNotFound},
		{"POST /api/v1/jobs HTTP/1.1\r\nHost: elsewhere.example\r\n", http.StatusMisdirectedRequest},
	} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n", tt.head, len(body)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(body); err != nil {
			t.Errorf("%q: the body was not taken: %v", tt.head, err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%q: the response was lost: %v", tt.head, err)
			continue
		}
		text, err := io.ReadAll(response.Body)
		if response.StatusCode != tt.want || err != nil || !strings.Contains(string(text), `"detail"`) {
			t.Errorf("%q: got %d %s, error %v", tt.head, response.StatusCode, text, err)
		}
	}
}

// A client that never sends the rest of a refused body is cut off.
func TestRefusedBodyThatDoesNotCome(t *testing.T) {
	s := newService(t)
	server := s.listen(nil)
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20000000\r\n\r\n{")
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	text, err := io.ReadAll(c) // until the server closes the connection
	if err != nil && !strings.Contains(err.Error(), "reset") || !strings.HasPrefix(string(text), "HTTP/1.1 413 ") {
		t.Errorf("got %q, error %v", text, err)
	}
}

func TestRefusedBodyOfPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	s := newService(t)
	server := s.listen(nil)
	const script = `
import sys, urllib.request, urllib.error
try:
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], b" " * 5_000_000, {"Content-Type": "application/json"}))
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
`
	out, err := exec.CommandContext(t.Context(), python, "-c", script, server.URL+"/api/v1/jobs").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "413 ") || !strings.Contains(string(out), "the maximum is 1048576 bytes") {
		t.Errorf("it printed %s, error %v", out, err)
	}
}
