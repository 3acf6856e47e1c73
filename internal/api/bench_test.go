package api

import "testing"

// BenchmarkReadDraft is what one job of an import costs before it is examined.
func BenchmarkReadDraft(b *testing.B) {
	text := []byte(`{"name": "report-4711", "schedule": "30 2 * * *", "timezone": "Europe/Paris", "tags": ["billing", "reports"], "maxRetries": 3, ` +
		`"payload": {"url": "https://example.com/hooks/report", "headers": {"Accept": "application/json"}, "body": {"format": "pdf", "customer": 4711}}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, faults, f := readDraft(text, ns, false); f != nil || len(faults) > 0 {
			b.Fatal(faults, f)
		}
	}
}
