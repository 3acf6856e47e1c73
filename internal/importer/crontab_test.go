package importer

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

var newYear = time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)

// occurrences are the instants of a job in 2027.
func occurrences(t *testing.T, job belfry.Manifest) (all []int64) {
	t.Helper()
	overlap := map[belfry.DSTOverlap]schedule.DSTOverlap{belfry.DSTFirst: schedule.DSTFirst, belfry.DSTBoth: schedule.DSTBoth}[job.DSTOverlap]
	rule, err := schedule.Parse(job.Schedule, schedule.Options{Timezone: job.Timezone, SkipGap: job.SkipsGap(), Overlap: overlap})
	if err != nil {
		t.Fatalf("%s: %v", job.Schedule, err)
	}
	end := time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := rule.Next(time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)); !at.IsZero() && at.Before(end); at = rule.Next(at) {
		all = append(all, at.Unix())
	}
	return all
}

var notAnEntry = regexp.MustCompile(`^\s*(#|$|[A-Z_]+\s*=)`)

// What the lines of the corpus run in 2027 is what cron runs, or there is a warning.
func TestCrontabRunsAsCronDoes(t *testing.T) {
	text, err := os.ReadFile("testdata/odd.crontab")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			result, err := Crontab(string(text), Options{Now: newYear, Timezone: zone})
			if err != nil {
				t.Fatal(err)
			}
			entries := make(map[int]Entry)
			for _, e := range result.Entries {
				entries[e.Line] = e
			}
			location, err := schedule.LoadZone(zone)
			if err != nil {
				t.Fatal(err)
			}
			var simulated []*simulatedLine
			var numbers []int
			for i, line := range lines {
				e, found := entries[i+1]
				if isEntry := !notAnEntry.MatchString(line); isEntry != found {
					t.Errorf("line %d, %q: imported is %v, want %v", i+1, line, found, isEntry)
				}
				if !found {
					continue
				}
				s, ok := simulate(strings.TrimSpace(line))
				if !ok {
					if e.LeftOut == "" && (lines[i-1] != "# differs" || len(e.Warnings) == 0) {
						t.Errorf("line %d, %q: cron does not run it, but there is a job: %s", i+1, line, e.Job.Schedule)
					}
					continue
				}
				simulated, numbers = append(simulated, s), append(numbers, i)
			}
			if len(simulated) < 100 {
				t.Fatalf("the corpus has only %d lines", len(simulated))
			}
			runs := simulateYear(simulated, location, 2027)
			for k, i := range numbers {
				compareRuns(t, lines, i, entries[i+1], runs[k])
			}
		})
	}
}

func compareRuns(t *testing.T, lines []string, i int, e Entry, want []int64) {
	mayDiffer := lines[i-1] == "# differs"
	if e.LeftOut != "" {
		if len(want) > 0 {
			t.Errorf("line %d, %q is left out: %s; cron runs it %d times", i+1, lines[i], e.LeftOut, len(want))
		}
		return
	}
	got := occurrences(t, e.Job)
	switch equal := slices.Equal(got, want); {
	case equal:
	case mayDiffer && len(e.Warnings) > 0:
	default:
		k := 0
		for k < min(len(got), len(want)) && got[k] == want[k] {
			k++
		}
		at := func(all []int64) string {
			if k < len(all) {
				return time.Unix(all[k], 0).UTC().Format(time.RFC3339)
			}
			return "none"
		}
		t.Errorf("line %d, %q, as %q (gap %q, overlap %q), warnings %q: %d runs, cron has %d; the first that differs is %s, of cron %s",
			i+1, lines[i], e.Job.Schedule, e.Job.DSTGap, e.Job.DSTOverlap, e.Warnings, len(got), len(want), at(got), at(want))
	}
}

func importLine(t *testing.T, text string, o Options) Entry {
	t.Helper()
	o.Now = newYear
	result, err := Crontab(text, o)
	if err != nil || len(result.Entries) != 1 {
		t.Fatalf("%q: %+v, %v; want one entry", text, result.Entries, err)
	}
	return result.Entries[0]
}

func TestCrontabCommand(t *testing.T) {
	home := func(user string) string { return map[string]string{"": "/home/me", "www-data": "/var/www"}[user] }
	e := importLine(t, `
SHELL = "/bin/bash"
'GREETING'='hello  world '
EMPTY=
MAILTO=""
LOGNAME=nobody
BASE = /srv/app   
10 3 * * * www-data  -q cat; date +\%F%first%%third \% of \100
PATH=/too/late`, Options{System: true, Home: home})
	want := Command{
		Argv: []string{"/bin/bash", "-c", "cat; date +%F"}, User: "www-data", Directory: "/var/www", Stdin: map[string]string{"text": "first\n\nthird % of \\100\n"},
		Environment: map[string]string{
			"SHELL": "/bin/bash", "GREETING": "hello  world ", "EMPTY": "", "BASE": "/srv/app", "PATH": defaultPath, "LOGNAME": "www-data", "HOME": "/var/www",
		},
	}
	if !reflect.DeepEqual(*e.Command, want) {
		t.Errorf("got  %+v\nwant %+v", *e.Command, want)
	}
	job := belfry.Manifest{Name: "cat", Payload: []byte(`{"command":"cat"}`), Spec: belfry.Spec{
		Type: "command", Schedule: "10 3 * * *", Overlap: belfry.OverlapParallel, MissedWindow: belfry.MissedSkip, MaxRetries: belfry.Some(0), TimeoutSeconds: 86400,
	}}
	if !reflect.DeepEqual(e.Job, job) || len(e.Warnings) > 0 {
		t.Errorf("got  %+v %q\nwant %+v", e.Job, e.Warnings, job)
	}
}

func TestCrontabWarnings(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"MAILTO=ops@example.com\n@daily x", "belfry channel create"},
		{"TZ=Asia/Tokyo\n@daily x", "TZ is the time zone of the commands"},
		{"CRON_TZ=Asia/Tokyo\n@daily x", "Debian's cron ignores it"},
		{"RANDOM_DELAY=45\n@daily x", "jitter_seconds"},
		{"RANDOM_DELAY=1441\n@daily x", `cron ignores "1441"`},
		{"SHELL=zsh\n@daily x", "/bin/zsh is used"},
		{"MY-VAR=x\n@daily x", `the variable "MY-VAR" is left out`},
		{"@daily x\r\n", "carriage return"},
		{"@reboot x", "left out: @reboot has no meaning"},
		{`TOKEN="secret" # of the shop`, "left out: cron refuses the line: neither"},
		{"@daily root x", "use --system"},
		{"@daily sudo -u www x", "sudo does not work"},
		{"~ 3~5 * * * x", "minute: cron chooses a value"},
		{"@3600 x", "counts from the end of the last run"},
	} {
		result, err := Crontab(tt.text, Options{Now: newYear, Home: func(string) string { return "/root" }})
		var got []string
		for _, w := range result.Warnings {
			got = append(got, w.Text)
		}
		for _, e := range result.Entries {
			got = append(got, e.Warnings...)
			if e.LeftOut != "" {
				got = append(got, "left out: "+e.LeftOut)
			}
		}
		if err != nil || len(got) != 1 && tt.text[0] != '~' || !strings.Contains(got[0], tt.want) || strings.Contains(got[0], "secret") {
			t.Errorf("%q: got %q, %v; want %q", tt.text, got, err, tt.want)
		}
	}
	if got := importLine(t, "CRON_TZ=Asia/Tokio\n@daily x", Options{}).LeftOut; !strings.Contains(got, `there is no time zone "Asia/Tokio"`) {
		t.Errorf("with a wrong zone the line is left out because %q", got)
	}
	if got := importLine(t, "@daily x", Options{}).Warnings; len(got) != 1 || !strings.Contains(got[0], "set directory") {
		t.Errorf("without a home directory the warnings are %q", got)
	}
}

func TestCrontabSchedules(t *testing.T) {
	for _, tt := range []struct{ line, zone, want string }{
		{"~ 3~5 ~10 * 1~ x", "", "H(0-59) H(3-5) H(1-10) * H(1-7)"},
		{"@every_minute x", "", "* * * * *"},
		{"@every_second x", "", "* * * * * *"},
		{"@900 x", "", "@every 900s skip"},
		{"0 4 * * * -ns x", "", "0 4 * * * skip"},
		{"-*/5 * * * * x", "", "*/5 * * * *"},
		{"CRON_TZ=Asia/Tokyo\n0 9 * * mon-fri x", "Europe/Berlin", "0 9 * * MON-FRI Asia/Tokyo run"},
		{"CRON_TZ=Asia/Tokyo\nCRON_TZ=\n*/5 9 * * * x", "Europe/Berlin", "*/5 9 * * * Europe/Berlin"},
		{"CRON_TZ=UTC\n0 9 * * * x", "Europe/Berlin", "0 9 * * *"},
		{"RANDOM_DELAY=45\n@weekly x", "Europe/Berlin", "@weekly Europe/Berlin run 2700"},
	} {
		e := importLine(t, tt.line, Options{Timezone: tt.zone})
		got := e.Job.Schedule
		for _, part := range []string{e.Job.Timezone, string(e.Job.DSTGap), string(e.Job.Overlap), strconv.Itoa(e.Job.JitterSeconds)} {
			if part != "" && part != "parallel" && part != "0" {
				got += " " + part
			}
		}
		if got != tt.want {
			t.Errorf("%q: got %q, want %q (%s)", tt.line, got, tt.want, e.LeftOut)
		}
	}
}

func TestCommandNames(t *testing.T) {
	for line, want := range map[string]string{
		"/usr/local/bin/backup.sh --full >> /var/log/backup.log 2>&1":                  "backup",
		"cd / && run-parts --report /etc/cron.hourly":                                  "run-parts-cron.hourly",
		"test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }": "run-parts-cron.daily",
		"[ -x /usr/bin/certbot ] && perl -e 'sleep 1' ; certbot -q renew":              "certbot",
		"certbot renew --quiet":                                 "certbot-renew",
		"/usr/bin/php8.2 /var/www/artisan schedule:run":         "php8.2-artisan",
		"php /var/www/artisan schedule:run":                     "artisan-schedule:run",
		"FOO=bar nice -n 19 ionice -c3 python3 report.py daily": "report-daily",
		"$HOME/bin/monthly":                                     "monthly",
		"flock -n /tmp/sync.lock timeout 600 rsync -a /srv/ b:": "rsync",
		"curl -fsS https://hooks.example.com/SECRET":            "curl",
		"mysqldump -u root -pSECRET shop | gzip > /tmp/x.gz":    "mysqldump",
		"mysqldump -p SECRET":                                   "mysqldump",
		"":                                                      "",
	} {
		if got := commandName(line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	result, err := Crontab("@daily /opt/a.sh\n@daily /opt/A.sh x\n@daily '/opt/ü'\n@daily ''\n@daily /opt/a.sh", Options{Now: newYear, Prefix: "web1-"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range result.Entries {
		names = append(names, e.Job.Name)
	}
	if got := strings.Join(names, " "); got != "web1-a web1-a-x web1-job web1-job-2 web1-a-2" {
		t.Errorf("the names are %s", got)
	}
}

func TestCrontabLimits(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("@daily x\n", maxEntries+1): "split the file",
		"@daily \xff": "UTF-8",
		"@daily \x00": "UTF-8",
	} {
		if _, err := Crontab(text, Options{Now: newYear}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %q", text, err, want)
		}
	}
	if e := importLine(t, "@daily "+strings.Repeat("x", maxLine), Options{}); !strings.Contains(e.LeftOut, "longer than") {
		t.Errorf("a line of %d bytes: %s", maxLine, e.LeftOut)
	}
	var many strings.Builder
	for i := range maxVariables + 1 {
		many.WriteString("V" + strconv.Itoa(i) + "=x\n")
	}
	if e := importLine(t, many.String()+"@daily x", Options{}); len(e.Command.Environment) != maxVariables+2 { // with PATH and SHELL
		t.Errorf("the command has %d variables", len(e.Command.Environment))
	}
}

// Whatever a file has, the jobs that it becomes have names and valid schedules.
func FuzzCrontab(f *testing.F) {
	f.Add("MAILTO=x\n*/5 0-23/2 1~9 jan mon-5,7 root cmd\\%x%y\n@reboot x\n\"A\"='b'\n5,* *,1 */2 * */3 -n x")
	f.Add("-1-1/9999999999 22-2,3 ~ ~5 * x\r\n@99 x\n@every_second y")
	f.Fuzz(func(t *testing.T, text string) {
		result, err := Crontab(text, Options{Now: newYear, System: len(text)%2 == 0, Timezone: "America/New_York"})
		if err != nil {
			return
		}
		names := make(map[string]bool)
		for _, e := range result.Entries {
			if e.LeftOut == "" && (e.Job.Name == "" || names[e.Job.Name] || e.Job.Schedule == "" || len(e.Command.Argv) != 3) {
				t.Errorf("%q became %+v", text, e)
			}
			names[e.Job.Name] = true
		}
	})
}
