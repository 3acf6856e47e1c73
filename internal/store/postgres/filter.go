package postgres

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/belfry-sh/belfry"
)

// arg adds an argument and gives its placeholder.
func (p *picking) arg(value any) string {
	p.args = append(p.args, value)
	return fmt.Sprintf("$%d", len(p.args))
}

// attributes says the filter in SQL, about a job j, but for its status.
func (p *picking) attributes() string {
	var b strings.Builder
	and := func(format string, args ...any) { fmt.Fprintf(&b, " AND "+format, args...) }
	f := p.filter
	if f.Queue != "" {
		and("j.queue = %s", p.arg(storable(f.Queue)))
	}
	if f.Type != "" {
		and("j.type = %s", p.arg(storable(f.Type)))
	}
	// Only jobs of type worker have a handler: to say so makes an index useful.
	if f.Handler != "" && f.Type != "" && f.Type != belfry.TypeWorker {
		and("false")
	} else if f.Handler != "" {
		and("j.type = 'worker' AND j.handler = %s", p.arg(storable(f.Handler)))
	} else if f.Type != "" && f.Type != belfry.TypeWorker {
		and("j.handler IS NULL")
	}
	if len(f.Tags) > 0 {
		and("j.tags @> %s::text[]", p.arg(storables(f.Tags)))
	}
	if f.Search != "" {
		and("%s", p.search(storable(f.Search)))
	}
	return b.String()
}

// status says in SQL what the filter asks for of the status of a live job j.
func (p *picking) status() string {
	if p.from == ofEnded {
		return "" // the walk asks for it
	}
	const live, running = `EXISTS (SELECT 1 FROM belfry.runs r WHERE r.job_id = j.id)`, `EXISTS (SELECT 1 FROM belfry.runs r WHERE r.job_id = j.id AND r.state = 'running')`
	switch p.filter.Status {
	case "":
		return ""
	case belfry.StatusPaused:
		return ` AND j.state = 'paused'`
	case belfry.StatusRunning:
		return ` AND j.state <> 'paused' AND ` + running
	case belfry.StatusQueued:
		return ` AND j.state <> 'paused' AND ` + live + ` AND NOT ` + running
	case belfry.StatusScheduled:
		return ` AND j.state <> 'paused' AND EXISTS (SELECT 1 FROM belfry.plans p WHERE p.job_id = j.id AND p.next_at IS NOT NULL) AND NOT ` + live
	case belfry.StatusFailed, belfry.StatusCompleted, belfry.StatusCancelled:
		return ` AND j.state <> 'paused' AND NOT ` + live + p.from.condition(p.filter.Status)
	}
	return ` AND false`
}

// search says that a name has a part, whatever the case of its letters. Plain
// letters are folded without asking the collation, which takes a third of the
// time.
func (p *picking) search(part string) string {
	collation, pattern := partly(part)
	return fmt.Sprintf(`j.name%s ILIKE %s`, collation, p.arg(pattern))
}

// partly is the pattern of texts that have a part, and how to compare by it.
func partly(part string) (collation, pattern string) {
	if !strings.ContainsFunc(part, func(r rune) bool { return r > unicode.MaxASCII }) {
		collation = ` COLLATE "C"`
	}
	return collation, "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part) + "%"
}

// condition says in SQL what else the jobs of a source have that ended so.
func (s source) condition(status belfry.JobStatus) string {
	switch {
	case s == ofUnplanned && status == belfry.StatusFailed:
		return ` AND EXISTS (SELECT 1 FROM belfry.dead d WHERE d.job_id = j.id)`
	case s == ofDiscarded:
		return ` AND EXISTS (SELECT 1 FROM belfry.plans p WHERE p.job_id = j.id AND p.next_at IS NULL)`
	}
	return ""
}
