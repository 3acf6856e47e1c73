package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/belfry-sh/belfry"
)

// one applies one job. A refusal is kept and the next job goes on; any other
// failure would meet them all.
func (a *apply) one(declared declaration) error {
	result := applied{Name: declared.name, File: fmt.Sprintf("%s:%d", declared.file, declared.line)}
	before, version, err := a.JobWithVersion(a.cmd.Context(), declared.name)
	missing := err != nil && exitCode(err) == exitNotFound
	if err != nil && !missing {
		return &about{declared.name, err}
	}
	var old members
	if !missing {
		if old, err = settable(before); err != nil {
			return err
		}
		result.ID = before.ID.String()
	}
	if a.dryRun {
		return a.compare(declared, old, result)
	}
	job, err := a.put(a.cmd.Context(), declared.name, declared.keeping(old), version)
	if codeOf(err) == belfry.Changed && a.ended(before, version) {
		return a.again(declared, old, result)
	}
	if err != nil {
		return a.refuse(declared, result, err)
	}
	result.ID = job.ID.String()
	if missing {
		result.Result = createdResult
		return a.note(result, nil)
	}
	after, err := settable(job)
	if err != nil {
		return err
	}
	result.Fields = changed(changes(old, after))
	if job.Revision != before.Revision && !slices.ContainsFunc(result.Fields, ofRevision) {
		result.Fields = append(result.Fields, "payload") // Nothing that is shown of it differs.
		result.remark = "(a secret)"
	}
	result.Result = unchangedResult
	if len(result.Fields) > 0 {
		result.Result = updatedResult
	}
	return a.note(result, nil)
}

// ended tells whether a job has ended: then it is no longer there to be changed,
// though it is still shown as it was.
func (a *apply) ended(before belfry.Job, version string) bool {
	if before.NextRunAt != nil {
		return false
	}
	_, now, err := a.JobWithVersion(a.cmd.Context(), before.ID.String())
	return err == nil && now == version
}

// again applies a job that has ended: it is made again if the file asks for
// something else than it was.
func (a *apply) again(declared declaration, old members, result applied) error {
	want, err := wanted(declared, old)
	if err != nil {
		return err
	}
	if len(changes(old, want)) == 0 {
		result.Result, result.remark = unchangedResult, "(it has ended)"
		return a.note(result, nil)
	}
	job, err := a.put(a.cmd.Context(), declared.name, declared.keeping(nil), "")
	if err != nil {
		return a.refuse(declared, result, err)
	}
	result.ID, result.Result = job.ID.String(), createdResult
	return a.note(result, nil)
}

// ofRevision tells whether a change of the field is a new revision.
func ofRevision(field string) bool { return field != "name" && field != "tags" && field != "status" }

// keeping gives the job to send. Where the file does not say whether the job is
// paused, it stays as it is.
func (d declaration) keeping(current members) members {
	out := maps.Clone(d.members)
	out["name"] = json.RawMessage(quote(d.name))
	if out["status"] == nil && current["status"] != nil {
		out["status"] = current["status"]
	}
	return out
}

// compare is what a dry run does about a job.
func (a *apply) compare(declared declaration, old members, result applied) error {
	want, err := wanted(declared, old)
	if err != nil {
		return err
	}
	result.Result = createdResult
	shown := want
	if old == nil {
		shown = maps.Clone(declared.members) // Defaults need not be told.
		delete(shown, "name")
	}
	list := changes(old, shown)
	result.Fields = changed(list)
	if old != nil {
		result.Result = updatedResult
		if len(list) == 0 {
			result.Result = unchangedResult
			if hasSecrets(want["payload"]) {
				result.remark = "(secrets are not compared)"
			}
		}
	}
	return a.note(result, list)
}

// hasSecrets tells whether a payload has something that is not shown.
func hasSecrets(payload json.RawMessage) bool {
	var compact bytes.Buffer
	if json.Compact(&compact, payload) != nil {
		return false
	}
	return !same(secret.Mask(payload), compact.Bytes())
}

// refuse keeps what the server found wrong with a job.
func (a *apply) refuse(declared declaration, result applied, err error) error {
	faults, ok := declared.refused(err)
	if !ok {
		return &about{declared.name, err}
	}
	if codeOf(err) == belfry.Changed {
		faults = misplacedAll{{declared.file, declared.line, declared.name + " was changed by somebody else at this moment; apply again"}}
	}
	result.Result = refusedResult
	for _, f := range faults {
		result.Errors = append(result.Errors, f.Error())
	}
	a.faults = append(a.faults, faults...)
	return a.note(result, nil)
}

// has tells whether a job has a tag.
func (d declaration) has(tag string) bool {
	var tags []string
	return json.Unmarshal(d.members["tags"], &tags) == nil && slices.Contains(tags, tag)
}
