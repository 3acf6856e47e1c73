package node

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// BenchmarkImport is how many jobs a second a whole node takes over HTTP, in
// requests of 50,000 named and tagged jobs. Half of it is the database.
func BenchmarkImport(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkImport(b, "") })
	b.Run("postgres", func(b *testing.B) { benchmarkImport(b, pgtest.Durable(b).URL()) })
}

func benchmarkImport(b *testing.B, url string) {
	const jobs = 50_000
	n, stop := running(b, url)
	defer stop()
	for i := 0; b.Loop(); i++ {
		body, out := io.Pipe()
		go func() {
			lines := bufio.NewWriterSize(out, 64<<10)
			for j := range jobs {
				fmt.Fprintf(lines, `{"name": "tenant-%d-report-%d", "schedule": "%d %d * * *", "timezone": "Europe/Paris", "tags": ["reports"], `+
					`"payload": {"url": "https://example.com/hooks/report", "headers": {"Accept": "application/json"}, "body": {"customer": %d}}}`+"\n",
					i, j, j%60, j/60%24, j)
			}
			lines.Flush()
			out.Close()
		}()
		resp, err := http.Post("http://"+n.Addr().String()+"/api/v1/jobs/bulk", "application/x-ndjson", body)
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusCreated {
			b.Fatalf("got %d %.300s (%v)", resp.StatusCode, text, err)
		}
	}
	b.ReportMetric(float64(b.N)*jobs/b.Elapsed().Seconds(), "jobs/s")
}
