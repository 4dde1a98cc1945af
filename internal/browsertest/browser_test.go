// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package browsertest_test

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// axe checks the accessibility of a page: axe-core 4.14.1, see testdata/axe/LICENSE.
//
//go:embed testdata/axe/axe.min.js
var axe string

// patience bounds the wait for a state of a page. It is long, because only a broken page reaches it.
const patience = 3 * time.Minute

// browser is one tab of a Chromium. It collects the problems that the browser reports.
type browser struct {
	tb  testing.TB
	ctx context.Context //nolint:containedctx // the tab that chromedp keeps in it

	mu       sync.Mutex
	problems []string
}

// openBrowser starts a Chromium with an empty profile. It ends with the test, and the test fails if
// the browser reported a problem.
func openBrowser(tb testing.TB) *browser {
	tb.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:len(chromedp.DefaultExecAllocatorOptions):len(chromedp.DefaultExecAllocatorOptions)],
		chromedp.UserDataDir(tb.TempDir()), chromedp.WindowSize(1200, 800), chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("no-sandbox", os.Getuid() == 0), // Chromium refuses to run its sandbox as root
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	if path := os.Getenv("REFOLD_CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	allocator, stop := chromedp.NewExecAllocator(tb.Context(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	b := &browser{tb: tb, ctx: ctx}
	tb.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil && tb.Context().Err() == nil {
			tb.Errorf("close Chromium: %v", err)
		}
		closeTab()
		stop()
		b.check("the end")
	})
	if err := chromedp.Listen(ctx, b.listen); err != nil { // starts the browser
		tb.Fatalf("start Chromium: %v", err)
	}
	return b
}

func (b *browser) listen(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded: // includes violations of the Content-Security-Policy
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.report("%s of %s: %s (%s)", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			text, _ := json.Marshal(e.Args)
			b.report("console.%s: %s", e.Type, text)
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
		b.report("exception: %s", text)
	case *cdppage.EventJavascriptDialogOpening:
		b.report("dialog: %s", e.Message)
	}
}

func (b *browser) report(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// reported returns the problems since its last call.
func (b *browser) reported() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

// check fails the test if the browser has reported a problem since the last check.
func (b *browser) check(during string) {
	b.tb.Helper()
	for _, problem := range b.reported() {
		b.tb.Errorf("during %s: %s", during, problem)
	}
}

// leave ends the streams of a page, so that the end of its server is no error.
func (b *browser) leave() {
	b.tb.Helper()
	b.run(chromedp.Navigate("about:blank"))
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.tb.Helper()
	get(b, chromedp.Steps(actions...))
}

// get returns the value of an action.
func get[T any](b *browser, action chromedp.Action[T]) T {
	b.tb.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.tb.Fatal(err)
	}
	return value
}

func (b *browser) open(url string) {
	b.tb.Helper()
	b.run(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("main")))
}

// click clicks the middle of an element with the mouse. The element must stay where it is: see press.
func (b *browser) click(selector string) {
	b.tb.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// settled is true when htmx has prepared all elements that it has swapped. If two swaps of a part
// follow each other closely, the end of the first one removes the class htmx-settling of both, and
// only the class htmx-added marks the new elements.
const settled = `!document.querySelector(".htmx-swapping, .htmx-settling, .htmx-added")`

// press clicks an element as soon as it exists and htmx has prepared it, in one step, because a
// stream may replace the element at any time.
func (b *browser) press(selector string) {
	b.tb.Helper()
	b.wait(fmt.Sprintf(`%s && (() => { const e = document.querySelector(%q); e?.click(); return e; })()`, settled, selector))
}

// confirm carries out an action of the console that asks for confirmation.
func (b *browser) confirm(selector string) {
	b.tb.Helper()
	b.press(selector)
	b.press("#dialog #confirm-yes")
	b.press("#dialog #done [data-close]")
	b.wait(`!document.querySelector("#dialog[open]")`)
}

// keys types keys into the element with the focus.
func (b *browser) keys(keys string) {
	b.tb.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, r := range keys {
			events := kb.Encode(r)
			if len(events) == 3 { // one event like that of a keyboard, so that a page can prevent the text
				events[0].Text, events[0].UnmodifiedText = events[1].Text, events[1].UnmodifiedText
				events = slices.Delete(events, 1, 2)
			}
			for _, event := range events {
				if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, *event); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// zone sets the time zone of the browser.
func (b *browser) zone(name string) {
	b.tb.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
		return err
	}))
}

// fill sets the fields of a form, by their IDs.
func (b *browser) fill(fields ...string) {
	b.tb.Helper()
	for i := 0; i < len(fields); i += 2 {
		b.run(chromedp.SetValue(chromedp.CSS("#"+fields[i]), fields[i+1]))
	}
}

// eval returns the value of an expression, which may be a promise.
func eval[T any](b *browser, expression string) T {
	b.tb.Helper()
	return get(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// wait returns when an expression is true in the page. chromedp.Poll compiles a text in the page,
// which its Content-Security-Policy forbids.
func (b *browser) wait(expression string) {
	b.tb.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	poll := `new Promise((done) => { const look = () => { if (` + expression + `) done(true); else setTimeout(look, 20); }; look(); })`
	for {
		_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](poll, chromedp.EvalAwaitPromise))
		if err == nil {
			return
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "context") && !strings.Contains(err.Error(), "navigated") {
			soon, stop := context.WithTimeout(b.ctx, 10*time.Second)
			defer stop()
			text, _ := chromedp.Run(soon, chromedp.Evaluate[string](`document.querySelector("main").innerText`))
			b.tb.Fatalf("wait for %s: %v; the page shows %.2000s", expression, err, text)
		}
	}
}

// schemes are the colour schemes in which each page is checked.
var schemes = []string{"light", "dark"}

// scheme sets the colour scheme, and disables animations, so that images show their end.
func (b *browser) scheme(name string) {
	b.tb.Helper()
	b.media(&emulation.MediaFeature{Name: "prefers-color-scheme", Value: name}, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	b.wait(still) // an animation that had begun continues
}

// still is true when no element changes its place or colour.
const still = `document.getAnimations().every((a) => a.playState !== "running")`

func (b *browser) media(features ...*emulation.MediaFeature) {
	b.tb.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		return err
	}))
}

// violation is a rule of axe that a page violates.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// violations returns the serious and critical violations that axe finds in a page: of all rules, or
// of those that depend on colours.
func (b *browser) violations(colours bool) []violation {
	b.tb.Helper()
	if eval[bool](b, `!window.axe`) {
		b.run(chromedp.Evaluate[chromedp.Void](axe))
	}
	options := `{resultTypes: ["violations"]}`
	if colours {
		options = `{resultTypes: ["violations"], runOnly: ["color-contrast", "link-in-text-block"]}`
	}
	all := eval[[]violation](b, `axe.run(document, `+options+`).then((r) => r.violations)`)
	return slices.DeleteFunc(all, func(v violation) bool { return v.Impact != "serious" && v.Impact != "critical" })
}

// inspect requires that a page has no serious violation of axe in any colour scheme, is not wider
// than its window, and that no element comes from a hostile text. It takes images of the pages that
// images lists. It also requires that the browser has reported no problem.
func (b *browser) inspect(name string) {
	b.tb.Helper()
	b.examine(name)
	b.check("page " + name)
}

// examine is inspect for a page of which the browser may report problems.
func (b *browser) examine(name string) {
	b.tb.Helper()
	if n := eval[int](b, `document.querySelectorAll('script:not([src]), img[src="x"]').length`); n != 0 {
		b.tb.Errorf("%s has %d elements that come from a text", name, n)
	}
	if wide := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
		b.tb.Errorf("%s is %d pixels wider than its window", name, wide)
	}
	for i, scheme := range schemes {
		b.scheme(scheme)
		for _, v := range b.violations(i > 0) {
			b.tb.Errorf("%s, %s: axe reports the %s violation %s: %s", name, scheme, v.Impact, v.ID, v.Help)
			for _, node := range v.Nodes[:min(3, len(v.Nodes))] {
				b.tb.Errorf("  %.300s: %s", node.HTML, node.FailureSummary)
			}
		}
		if slices.Contains(images, name) {
			b.picture(name, scheme)
		}
	}
}

// shows waits until a page contains a text.
func (b *browser) shows(text string) {
	b.tb.Helper()
	b.wait(fmt.Sprintf(`document.querySelector("main")?.textContent.includes(%q)`, text))
}

// images are the pages of which the documentation has an image in each colour scheme.
var images = []string{
	"overview", "entities", "entity", "live", "projections", "shards", "confirm", "drained", "nodes", "tail", "data", "journal", "login", "bank", "bank-crash",
}

// The limits of the images in the repository, in bytes.
const (
	largestImage = 150_000
	largestTotal = 2_000_000
)

func imageFile(name, scheme string) string { return name + "-" + scheme + ".webp" }

// picture writes an image of a page into the folder REFOLD_IMAGES, by default tmp/pages.
func (b *browser) picture(name, scheme string) {
	b.tb.Helper()
	dir := cmp.Or(os.Getenv("REFOLD_IMAGES"), filepath.Join(root, "tmp", "pages"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.tb.Fatal(err)
	}
	quality := int64(90)
	shot := get(b, func(ctx context.Context, t *chromedp.Target) (cdppage.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, t, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{Format: cdppage.CaptureScreenshotFormatWebp, Quality: &quality})
	})
	if len(shot.Data) > largestImage {
		b.tb.Errorf("the image of %s has %d bytes, want at most %d", name, len(shot.Data), largestImage)
	}
	if err := os.WriteFile(filepath.Join(dir, imageFile(name, scheme)), shot.Data, 0o644); err != nil {
		b.tb.Error(err)
	}
}

// The documentation shows each page in each colour scheme. The images are small.
func TestImages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "console.md"))
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, name := range images {
		for _, scheme := range schemes {
			file := imageFile(name, scheme)
			info, err := os.Stat(filepath.Join(root, "docs", "images", "console", file))
			if err != nil {
				t.Errorf("%v: make screenshots takes the image", err)
				continue
			}
			if total += info.Size(); info.Size() > largestImage {
				t.Errorf("%s has %d bytes, want at most %d", file, info.Size(), largestImage)
			}
			if !strings.Contains(string(text), "(images/console/"+file+")") {
				t.Errorf("docs/console.md has no link to %s", file)
			}
		}
	}
	if total > largestTotal {
		t.Errorf("the images have %d bytes, want at most %d", total, largestTotal)
	}
}

// The checks of the other tests find an inline script, an exception, and text without contrast.
func TestProblemsAreReported(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/inline", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>x</title><main><h1>x</h1></main><script>1</script>`)
	})
	mux.HandleFunc("/throws", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>x</title><main><h1 style="color:#eee;background:#fff">pale</h1></main><script>throw new Error("thrown")</script>`)
	})
	mux.HandleFunc("/favicon.ico", func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(mux)
	defer server.Close()
	b := openBrowser(t)
	for path, want := range map[string]string{"/inline": "Content Security Policy", "/throws": "thrown"} {
		b.open(server.URL + path)
		if problems := strings.Join(b.reported(), "\n"); !strings.Contains(problems, want) {
			t.Errorf("%s: the browser reports %q, want %q", path, problems, want)
		}
	}
	b.open(server.URL + "/throws")
	_ = b.reported()
	b.scheme("light")
	if found := b.violations(true); len(found) != 1 || found[0].ID != "color-contrast" {
		t.Errorf("axe reports %v, want color-contrast", found)
	}
}
