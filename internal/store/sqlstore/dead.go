package sqlstore

import (
	"context"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// The columns of dead letters x, with their last attempts a and their jobs j.
const (
	DeadLetterColumns = DeadColumns + `, x.fingerprint, coalesce(j.name, ''), CASE WHEN j.state <> 'deleted' THEN j.revision ELSE 0 END, x.payload IS NOT NULL`
	JoinJobName       = ` LEFT JOIN belfry.jobs j ON j.id = x.job_id`

	// FindDeadLetter reads the spec and the payload of the revision that the run was fired from,
	// unless the run has a payload of its own.
	FindDeadLetter = DeadLetterColumns + `, CASE WHEN x.payload IS NOT NULL THEN x.payload WHEN j.revision = x.revision THEN j.payload ELSE v.payload END,
       coalesce(CASE WHEN j.revision = x.revision THEN j.spec ELSE v.spec END, '')
  FROM belfry.dead x` + JoinLastAttempt + JoinJobName + ` LEFT JOIN belfry.revisions v ON v.job_id = x.job_id AND v.revision = x.revision WHERE x.namespace = $1 AND x.id = $2`
)

// DeadLetterFields is where the columns of a dead letter belong.
func DeadLetterFields(l *belfry.DeadLetter) []any {
	return append(RunFields(&l.Run), &l.Fingerprint, &l.JobName, &l.JobRevision, &l.HasPayload)
}

func (s Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (letter belfry.DeadLetter, err error) {
	err = s.DB.Do(ctx, Read, "look up a dead letter", func(t Tx) error {
		spec, found := "", false
		err := t.Query(append(DeadLetterFields(&letter), &letter.Payload, &spec), func() { found = true }, FindDeadLetter, namespace, run)
		if err == nil && !found {
			err = store.NoSuch("dead letter", run)
		}
		if err != nil {
			return err
		}
		letter.Spec = s.Specs.OrZero(spec)
		letter.Attempts, err = attempts(t, run)
		return err
	})
	return letter, err
}
