// Package browsertest uses pages in a real Chromium as a person does: by the labels and
// texts that can be seen. A tab fails its test on errors in the console, on violations of
// the Content-Security-Policy, and on requests to another host.
package browsertest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

//go:embed testdata/axe.min.js
var axe string

// patience is how long a tab waits for something to appear.
const patience = time.Minute

var browser struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

// Main runs the tests of a package that shares one browser, with the function of another
// package of test support.
func Main(m *testing.M, run func(*testing.M) int) int {
	code := run(m)
	if browser.stop != nil {
		browser.stop()
	}
	return code
}

func start() {
	path, err := exec.LookPath("chromium")
	if browser.err = err; err != nil {
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("no-default-browser-check", true), chromedp.Flag("disable-domain-reliability", true), chromedp.Flag("no-pings", true),
		chromedp.Env("TZ=Europe/Paris"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	browser.ctx = ctx
	browser.stop = func() {
		_ = chromedp.Cancel(ctx) // it ends in any case
		stop()
		stopAllocator()
	}
	browser.err = chromedp.Do(ctx)
}

// Tab is a tab of the browser, with cookies of its own.
type Tab struct {
	t    testing.TB
	ctx  context.Context
	base string

	mu       sync.Mutex
	problems []string
	allowed  []string // texts of problems that a test expects
}

// Open opens a tab for the server at an address. Without Chromium the test is skipped, or
// fails if BELFRY_TEST_REQUIRE_CHROMIUM is set.
func Open(t testing.TB, address string) *Tab {
	t.Helper()
	browser.once.Do(start)
	if browser.err != nil {
		if os.Getenv("BELFRY_TEST_REQUIRE_CHROMIUM") != "" {
			t.Fatalf("Chromium: %v", browser.err)
		}
		t.Skipf("Chromium is not installed (sudo apt-get install -y chromium): %v", browser.err)
	}
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	tab := &Tab{t: t, ctx: ctx, base: strings.TrimSuffix(address, "/")}
	tab.watch()
	tab.Viewport(1280, 900)
	t.Cleanup(func() {
		cancel()
		tab.mu.Lock()
		defer tab.mu.Unlock()
		for _, p := range tab.problems {
			t.Errorf("the page: %s", p)
		}
	})
	return tab
}

func (b *Tab) watch() {
	console, requests := chromedp.Console(b.ctx), chromedp.Events(b.ctx, network.RequestWillBeSent)
	go func() {
		for m, err := range console {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException || strings.Contains(m.Text, "Content Security Policy") {
				b.report(fmt.Sprintf("%s: %s %s", m.Type, m.Text, m.URL))
			}
		}
	}()
	host, _ := url.Parse(b.base)
	go func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			if u, err := url.Parse(e.Request.URL); err != nil || u.Host != host.Host && u.Scheme != "data" && u.Scheme != "about" {
				b.report("a request to " + e.Request.URL)
			}
		}
	}()
}

func (b *Tab) report(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.allowed {
		if strings.Contains(problem, text) {
			return
		}
	}
	b.problems = append(b.problems, problem)
}

// Expect lets a problem with this text happen.
func (b *Tab) Expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, text)
}

func (b *Tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// eval evaluates a function of script with arguments.
func eval[T any](b *Tab, function string, args ...any) (T, error) {
	list := make([]string, len(args))
	for i, a := range args {
		text, _ := json.Marshal(a)
		list[i] = string(text)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T]("("+function+")("+strings.Join(list, ",")+")", chromedp.EvalAwaitPromise))
}

// Go opens a path of the server.
func (b *Tab) Go(path string) {
	b.t.Helper()
	b.do("open "+path, chromedp.Navigate(b.base+path))
}

// Viewport sets the size of the window.
func (b *Tab) Viewport(width, height int64) {
	b.t.Helper()
	b.do("set the size", chromedp.EmulateViewport(width, height))
}

// Scheme prefers a colour scheme, light or dark, and no motion: colours change at once.
func (b *Tab) Scheme(scheme string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}); err != nil {
		b.t.Fatal(err)
	}
}

// wait repeats a check until it holds. The page may be loading, so that it may fail.
func (b *Tab) wait(what string, check func() (bool, error)) {
	b.t.Helper()
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		ok, err := check()
		if ok {
			return
		}
		last = err
	}
	text, _ := eval[string](b, `() => document.body.innerText`)
	b.Screenshot("failure-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
	b.t.Fatalf("%s: not within %s (%v); the page at %s says:\n%s", what, patience, last, b.URL(), text)
}

// URL is the address of the page.
func (b *Tab) URL() string {
	at, _ := eval[string](b, `() => location.pathname + location.search`)
	return at
}

// See waits until all texts can be seen.
func (b *Tab) See(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.wait(fmt.Sprintf("see %q", text), func() (bool, error) { return eval[bool](b, `t => document.body.innerText.includes(t)`, text) })
	}
}

// NotSee waits until a text cannot be seen any more.
func (b *Tab) NotSee(text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("not see %q", text), func() (bool, error) { return eval[bool](b, `t => !document.body.innerText.includes(t)`, text) })
}

// find gives the middle of an element that can be seen.
const find = `(kind, text) => {
  const seen = e => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width > 0;
  const name = e => (e.getAttribute('aria-label') || e.innerText || e.value || '').trim().replace(/\s+/g, ' ');
  let list = [];
  if (kind === 'click') list = [...document.querySelectorAll('a, button, summary, label, [role=button]')].filter(seen).filter(e => name(e) === text || e.innerText.trim() === text);
  else for (const l of document.querySelectorAll('label')) if (l.innerText.replace('· required', '').trim() === text) { const e = document.getElementById(l.htmlFor); if (e && seen(e)) list.push(e); }
  if (kind !== 'click') for (const e of document.querySelectorAll('[aria-label]')) if (e.getAttribute('aria-label') === text && seen(e)) list.push(e);
  if (!list.length) return null;
  list[0].scrollIntoView({block: 'center', behavior: 'instant'});
  const r = list[0].getBoundingClientRect();
  return {x: r.x + r.width / 2, y: r.y + Math.min(r.height / 2, 20)};
}`

type point struct{ X, Y float64 }

func (b *Tab) locate(kind, text string) (p point) {
	b.t.Helper()
	b.wait(fmt.Sprintf("find %q", text), func() (bool, error) {
		at, err := eval[*point](b, find, kind, text)
		if err != nil || at == nil {
			return false, err
		}
		p = *at
		return true, nil
	})
	return p
}

// Click clicks a link, button or the like by its text.
func (b *Tab) Click(text string) {
	b.t.Helper()
	p := b.locate("click", text)
	b.do("click "+text, chromedp.MouseClickXY(p.X, p.Y))
}

// Tick clicks the input with a label.
func (b *Tab) Tick(label string) {
	b.t.Helper()
	p := b.locate("input", label)
	b.do("tick "+label, chromedp.MouseClickXY(p.X, p.Y))
}

// Fill replaces the text of the input with a label.
func (b *Tab) Fill(label, value string) {
	b.t.Helper()
	p := b.locate("input", label)
	b.do("fill "+label, chromedp.MouseClickXY(p.X, p.Y))
	if _, err := eval[bool](b, `() => { document.activeElement.select && document.activeElement.select(); return true }`); err != nil {
		b.t.Fatal(err)
	}
	if value == "" {
		b.Press("\b")
		return
	}
	b.Press(value)
}

// Set sets an input that is not typed into, such as a date.
func (b *Tab) Set(label, value string) {
	b.t.Helper()
	b.locate("input", label)
	_, err := eval[bool](b, `(label, v) => { const l = [...document.querySelectorAll('label')].find(l => l.innerText.replace('· required', '').trim() === label); const e = document.getElementById(l.htmlFor); e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true})); return true }`, label, value)
	if err != nil {
		b.t.Fatal(err)
	}
}

// Press sends keys.
func (b *Tab) Press(keys string) {
	b.t.Helper()
	b.do("press keys", chromedp.KeyEvent(keys))
}

// Value is the value of the input with a label.
func (b *Tab) Value(label string) string {
	b.t.Helper()
	b.locate("input", label)
	v, err := eval[string](b, `label => { const l = [...document.querySelectorAll('label')].find(l => l.innerText.replace('· required', '').trim() === label); return document.getElementById(l.htmlFor).value }`, label)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// Script evaluates a function without arguments.
func (b *Tab) Script(function string) any {
	b.t.Helper()
	v, err := eval[any](b, function)
	if err != nil {
		b.t.Fatalf("script: %v", err)
	}
	return v
}

// Screenshot writes an image of the whole page to web-shots in the module.
func (b *Tab) Screenshot(name string) {
	b.t.Helper()
	dir := filepath.Join("..", "..", "web-shots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Errorf("screenshot: %v", err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Accessible fails the test if axe-core finds a serious or critical violation on the page.
func (b *Tab) Accessible(where string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](axe+";true")); err != nil {
		b.t.Fatalf("load axe-core: %v", err)
	}
	found, err := eval[string](b, `() => axe.run().then(r => r.violations.filter(v => v.impact === 'serious' || v.impact === 'critical')
    .map(v => v.id + ': ' + v.help + '\n' + v.nodes.slice(0, 3).map(n => '    ' + n.html.slice(0, 160) + ' ' + n.failureSummary.slice(0, 300)).join('\n')).join('\n'))`)
	if err != nil {
		b.t.Fatalf("axe-core: %v", err)
	}
	if found != "" {
		b.t.Errorf("%s: axe-core found\n%s", where, found)
	}
}

// Wide reports by how many pixels the page is wider than the window.
func (b *Tab) Wide() int {
	n, err := eval[int](b, `() => document.documentElement.scrollWidth - innerWidth`)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}
