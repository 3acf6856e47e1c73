//go:build unix

package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"
)

// client is the HTTP client of the tests, shared by all of them. A node closes a connection
// that has had no request for five seconds, such as one that was opened while another became
// free; the client closes it first, since a POST on it at that moment would fail.
var client = &http.Client{
	Timeout:   40 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second},
}

// apiError is a response that is not 2xx.
type apiError struct {
	status      int
	contentType string
	detail      string
}

func (r *apiError) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.detail) }

// errDown is asking a node that is not there.
var errDown = errors.New("the node is down")

// request sends a request and decodes the response. After any error but an apiError it
// is unknown whether the node carried it out.
func request(base, method, path string, body, into any) error {
	_, err := requestPage(base, method, path, body, into)
	return err
}

var nextLink = regexp.MustCompile(`<([^>]+)>; rel="next"`)

// requestPage is request for one page of a list; it also returns the path of the next
// one.
func requestPage(base, method, path string, body, into any) (next string, err error) {
	if base == "" {
		return "", errDown
	}
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return "", err
		}
	}
	req, err := http.NewRequest(method, base+path, &content)
	if err != nil {
		return "", err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode/100 != 2 {
		return "", newAPIError(resp, text)
	}
	if m := nextLink.FindStringSubmatch(resp.Header.Get("Link")); m != nil {
		next = m[1]
	}
	if into == nil || len(text) == 0 {
		return next, nil
	}
	return next, json.Unmarshal(text, into)
}

func newAPIError(resp *http.Response, text []byte) *apiError {
	var problem struct{ Detail string }
	if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		problem.Detail = string(text)
	}
	return &apiError{resp.StatusCode, resp.Header.Get("Content-Type"), problem.Detail}
}

// outcomeUnknown reports whether a request may or may not have been carried out: the
// node was lost, or does not know.
func outcomeUnknown(err error) bool {
	var r *apiError
	return !errors.As(err, &r) || r.status == http.StatusServiceUnavailable
}

// jobEnded reports whether a request failed because its job, a one-off, has ended.
func jobEnded(err error) bool {
	var r *apiError
	return errors.As(err, &r) && r.status == http.StatusConflict
}

// pages reads a whole list.
func pages[T any](base, path string) ([]T, error) {
	var all []T
	for path != "" {
		var page []T
		next, err := requestPage(base, "GET", path, nil, &page)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all, path = append(all, page...), next
	}
	return all, nil
}

// getRun reads one run with its attempts.
func getRun(base, id string) (apiRun, error) {
	var run apiRun
	err := request(base, "GET", "/api/v1/runs/"+id, nil, &run)
	return run, err
}

// runsOf reads the runs and skips of a job, with the attempts of those that have
// more than one or did not succeed.
func runsOf(base, job string) ([]apiRun, error) {
	runs, err := pages[apiRun](base, "/api/v1/jobs/"+job+"/runs?limit=500")
	for i := range runs {
		if err == nil && !runs[i].skipped() && runs[i].settled() && (runs[i].Attempt > 1 || runs[i].Status != "succeeded") {
			runs[i], err = getRun(base, runs[i].ID)
		}
	}
	return runs, err
}
