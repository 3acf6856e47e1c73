package api

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
)

// result is a result as it travels.
type result struct {
	RunID      belfry.ID      `json:"run_id"`
	Attempt    int            `json:"attempt"`
	Token      belfry.Token   `json:"token"`
	Outcome    belfry.Outcome `json:"outcome"`
	HTTPStatus int            `json:"http_status,omitempty"`
	Error      string         `json:"error,omitempty"`
	Output     string         `json:"output,omitempty"`

	RetryAfterSeconds float64 `json:"retry_after_seconds,omitempty"`
	Permanent         bool    `json:"permanent,omitempty"`
}

// results is the body in which a worker tells what became of its attempts.
type results struct {
	Results []result `json:"results"`
}

// verdicts is the answer to that, in the same order.
type verdicts struct {
	Verdicts []belfry.Verdict `json:"verdicts"`
}

type resultsOf struct {
	workerOf
	results []belfry.Result
}

func readResults(r *http.Request) (in resultsOf, err error) {
	if in.workerOf, err = readWorker(r); err != nil {
		return in, err
	}
	return in, readWorkerBody(r, maxResultBody, fieldsFor[results](), func(o *object) {
		o.list("results", fieldsFor[result](), maxResults, func(item *object) {
			in.results = append(in.results, takeResult(item, in.namespace))
		})
	})
}

func takeResult(o *object, namespace string) belfry.Result {
	r := belfry.Result{Namespace: namespace}
	o.attempt(&r.RunID, &r.Attempt)
	o.needed("token", &r.Token, "the token of the attempt")
	o.text("outcome", (*string)(&r.Outcome), "")
	o.whole("http_status", &r.HTTPStatus, 0)
	o.text("error", &r.Error, "")
	o.truth("permanent", &r.Permanent)
	o.number("retry_after_seconds", &r.RetryAfterSeconds, 0)
	if most := belfry.MaxDelay.Seconds(); r.RetryAfterSeconds < 0 || r.RetryAfterSeconds > most {
		o.fault(o.within+"retry_after_seconds", "must be from 0 to %.0f seconds, which are 7 days", most)
	}
	var output string
	o.text("output", &output, "")
	if output != "" {
		r.Output = []byte(sanitize.Text(output, belfry.MaxOutput))
	}
	return r
}

func (a *api) finishRuns(ctx context.Context, in resultsOf) (answer, error) {
	all, err := a.control.Finish(ctx, in.namespace, in.results)
	return answer{status: http.StatusOK, body: verdicts{all}}, err
}
