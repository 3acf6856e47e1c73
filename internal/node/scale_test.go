package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// atScale is the larger size with BELFRY_TEST_SCALE=1, see make scale.
func atScale(small, large int) int {
	if os.Getenv("BELFRY_TEST_SCALE") == "1" {
		return large
	}
	return small
}

// slack is how much later than promised something may be in the small size, which runs
// beside all other tests.
func slack() time.Duration { return time.Duration(atScale(10, 0)) * time.Second }

// retryReceiver fails the first attempt of every run, and records how much later than a
// second after that the next one comes.
type retryReceiver struct {
	mu     sync.Mutex
	failed map[string]time.Time
	late   []time.Duration
}

func (r *retryReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := req.Header.Get("Belfry-Run-Id")
	if at, again := r.failed[run]; again {
		r.late = append(r.late, time.Since(at)-time.Second)
		return
	}
	r.failed[run] = time.Now()
	w.WriteHeader(http.StatusInternalServerError)
}

func (r *retryReceiver) latest() (n int, late time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.late) == 0 {
		return 0, 0
	}
	return len(r.late), slices.Max(r.late)
}

// While a day with millions of rows is pruned, of which some are kept longer, retries are
// on time and the run of a dead worker is offered again within 30 seconds.
func TestPruningDelaysNothing(t *testing.T) {
	rows := atScale(30_000, 3_000_000)
	address := pgtest.Database(t, postgres.Migrate)
	db := connect(t, address)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -100)
	execute(t, db, fmt.Sprintf(`CREATE TABLE belfry.history_%s PARTITION OF belfry.history FOR VALUES FROM ('%s') TO ('%s')`,
		day.Format("2006_01_02"), day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
	execute(t, db, fmt.Sprintf(`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
		attempt, started_at, settled_at, http_status, error, output, skipped_count, retain_until)
		SELECT gen_random_uuid(), i %% 64, 'default', gen_random_uuid(), 1, 'scheduled', 'succeeded', '', at, at, at, gen_random_uuid(), 1, 1, at, at, 200, '', 'done', 0,
		       CASE WHEN i %% 100 = 0 THEN now() + interval '1 day' END
		  FROM (SELECT i, '%s'::timestamptz + i * interval '1 millisecond' AS at FROM generate_series(1, %d) i) x`, day.Format(time.RFC3339), rows))
	left := func() (n int) {
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM belfry.history WHERE settled_at < now() - interval '99 days' AND retain_until IS NULL`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	r := &retryReceiver{failed: map[string]time.Time{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	base, _ := startNode(t, func(c *Config) { c.DatabaseURL, c.AllowTargets = address, []string{"127.0.0.1"} })
	for range 10 {
		createJob(t, base, `{"schedule":"* * * * * *","overlap":"parallel","retry_backoff":"fixed","retry_base_seconds":1,"retry_jitter":0,"payload":{"url":"`+server.URL+`"}}`)
	}
	abandoned := abandonRun(t, base)
	silent := time.Now()
	offered := time.Duration(0)
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		var running int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM belfry.runs WHERE id = $1 AND state = 'running'`, abandoned).Scan(&running); err != nil {
			t.Fatal(err)
		}
		if running == 0 && offered == 0 {
			offered = time.Since(silent)
		}
		n, late := r.latest()
		if offered > 0 && n > 50 && left() == 0 {
			t.Logf("%d rows were pruned in %v; of %d retries the latest was %v late; the run of a dead worker was offered again after %v",
				rows, time.Since(silent).Round(time.Second), n, late.Round(time.Millisecond), offered.Round(time.Second))
			if late > time.Second+slack() || offered > 30*time.Second+slack() {
				t.Error("that is too late")
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 5 minutes %d rows are left, %d retries came, the run was offered after %v", left(), n, offered)
		}
	}
}

// Plans that nobody can run delay no others, also where notifications do not arrive.
func TestUnservedPlansDelayNobody(t *testing.T) {
	unserved := atScale(3000, 100_000)
	address := pgtest.Database(t, postgres.Migrate)
	var mu sync.Mutex
	var lags []time.Duration
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, err := time.Parse(time.RFC3339Nano, r.Header.Get("Belfry-Scheduled-At"))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		lags = append(lags, time.Since(at))
	}))
	t.Cleanup(sink.Close)
	base, _ := startNode(t, func(c *Config) {
		c.DatabaseURL, c.AllowTargets, c.RateLimit = address+"&default_query_exec_mode=exec", []string{"127.0.0.1"}, 0
	})
	due := time.Now().UTC().Add(time.Second).Format(time.RFC3339)
	read, write := io.Pipe()
	go func() {
		for i := range unserved {
			fmt.Fprintf(write, `{"type":"worker","handler":"nobody","queue":"q%d","schedule":"%s"}`+"\n", i%20, due)
		}
		write.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/api/v1/jobs/bulk", read)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("creating jobs: %s", resp.Status)
	}
	total := atScale(60, 400)
	for i := range total {
		at := time.Now().UTC().Add(time.Second).Format(time.RFC3339Nano)
		if i%2 == 0 {
			createJob(t, base, `{"schedule":"`+at+`","payload":{"url":"`+sink.URL+`"}}`)
		} else {
			job := createJob(t, base, `{"schedule":"0 0 1 1 *","payload":{"url":"`+sink.URL+`"}}`)
			request(t, "POST", base+"/api/v1/jobs/"+job.ID.String()+"/trigger", `{}`, nil)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		mu.Lock()
		n := len(lags)
		mu.Unlock()
		if n >= total {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d runs came", n, total)
		}
	}
	slices.Sort(lags)
	t.Logf("beside %d plans that nobody can run: median %v, latest %v", unserved, lags[len(lags)/2].Round(time.Millisecond), lags[len(lags)-1].Round(time.Millisecond))
	if lags[len(lags)-1] > 2*time.Second+slack() {
		t.Error("that is too late")
	}
}

func createJob(t *testing.T, base, body string) (job belfry.Job) {
	t.Helper()
	if status := request(t, "POST", base+"/api/v1/jobs", body, &job); status != http.StatusCreated {
		t.Fatalf("creating a job: %d", status)
	}
	return job
}

// abandonRun has a worker claim a run and say nothing more.
func abandonRun(t *testing.T, base string) string {
	t.Helper()
	createJob(t, base, `{"type":"worker","handler":"abandoned","schedule":"`+time.Now().UTC().Format(time.RFC3339)+`","timeout_seconds":3600}`)
	worker := belfry.NewID(time.Now()).String()
	path := base + "/api/v1/workers/" + worker
	if status := request(t, "POST", path+"/heartbeat", `{"node":"test","slots":1,"handlers":["abandoned"],"register":true}`, nil); status != http.StatusOK {
		t.Fatalf("registering a worker: %d", status)
	}
	var claimed struct {
		Runs []struct {
			ID string `json:"run_id"`
		} `json:"runs"`
	}
	request(t, "POST", path+"/claim", `{"handlers":["abandoned"],"limit":1,"wait_seconds":20}`, &claimed)
	if len(claimed.Runs) != 1 {
		t.Fatalf("%d runs were claimed", len(claimed.Runs))
	}
	return claimed.Runs[0].ID
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, db *pgx.Conn, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
