// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package browsertest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/store"
)

// set moves a slider or fills a field like a user.
func set(selector string, value any) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{const e = document.querySelector(%q); e.value = "%v"; e.dispatchEvent(new Event("input", {bubbles: true}));}`, selector, value))
}

// console opens each page of the console of a bank, and drains a branch. The slider of the account
// alice must show the balances.
func (b *browser) console(bank server, balances []string) {
	b.tb.Helper()
	address := bank.url + "/console/"
	open := func(name, page string) {
		b.tb.Helper()
		b.open(address + page)
		b.wait(`document.querySelector("h1")`)
		if problem := eval[string](b, `document.querySelector("main .notice.bad")?.textContent ?? ""`); problem != "" {
			b.tb.Errorf("page %s of the console reports a problem: %s", page, problem)
		}
		if name != "" {
			b.inspect(name)
		}
	}
	open("overview", "")
	open("entities", "entities?type=account")
	b.shows("account|alice")
	open("data", "data")
	open("nodes", "nodes")
	open("no projections", "projections")

	open("", "tail")
	bank.openAccount(b.tb, "carol", "Carol Wu")
	bank.send(b.tb, "/accounts/carol/deposits", `{"amount": "20.00", "currency": "USD", "request_id": "d1"}`)
	bank.send(b.tb, "/accounts/carol/transfers", `{"amount": "5.00", "currency": "USD", "to": "a00", "request_id": "t1"}`)
	b.wait(`document.querySelectorAll("#events > li").length >= 5`) // opened, deposited, and three events of the transfer
	b.inspect("tail")
	bank.openAccount(b.tb, "trudy", hostile)
	b.shows(hostile)
	b.inspect("tail with a hostile owner")

	open("", "entities/account%7Calice")
	for i, balance := range balances {
		b.run(set("#range", i+1))
		b.wait(fmt.Sprintf(`document.getElementById("state-at").textContent === "%d"`, i+1))
		if shown := b.field("Balance"); shown != strconv.Quote(balance+" USD") {
			b.tb.Errorf("after event %d the slider of the console shows the balance %s, and the page of the bank shows %s USD", i+1, shown, balance)
		}
	}
	b.inspect("entity")
	open("", "entities/account%7Cmallory")
	b.wait(fmt.Sprintf(`document.getElementById("history").textContent.includes(%q)`, hostile))
	if owner := b.field("Owner"); owner != strconv.Quote(hostile) {
		b.tb.Errorf("the state has the owner %s, want %q", owner, hostile)
	}
	b.inspect("entity with a hostile owner")

	open("", "journal")
	b.confirm("#verify-start")
	b.wait(`document.querySelector('#verify[data-running="false"] #records') && document.querySelector("#verify .tag.ok")`)
	b.inspect("journal")

	open("", "shards")
	cells := func(node string) string {
		return fmt.Sprintf(`document.querySelectorAll('a.cell[data-node=%q]').length`, node)
	}
	b.wait(cells("branch-1") + " > 0 && " + cells("branch-2") + " > 0 && " + cells("branch-3") + " > 0")
	b.inspect("shards")
	moving := eval[[]string](b, `[...document.querySelectorAll('a.cell[data-node="branch-2"]')].map((c) => c.dataset.shard)`)
	b.press("#drain-branch-2")
	b.wait(`document.querySelector("#dialog[open] #confirm-yes") && ` + settled)
	b.inspect("confirm")
	b.media(&emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "no-preference"})
	b.run(chromedp.Evaluate[chromedp.Void](`window.moved = new Set(); new MutationObserver((changes) => {
		for (const c of changes) if (c.target.classList.contains("moved") && c.target.getAnimations().length) moved.add(c.target.dataset.shard);
	}).observe(document.getElementById("live"), { subtree: true, attributes: true, attributeFilter: ["class"] })`))
	b.press("#dialog #confirm-yes")
	b.press("#dialog #done [data-close]")
	b.wait(cells("branch-2") + " === 0")
	for _, shard := range moving {
		b.wait(fmt.Sprintf(`["branch-1", "branch-3"].includes(document.querySelector('a.cell[data-shard=%q]')?.dataset.node)`, shard))
		b.wait(fmt.Sprintf(`moved.has(%q)`, shard)) // its cell has moved to its new place
	}
	b.wait(`document.getAnimations().length === 0`)
	b.inspect("drained")
}

// field returns the value of a field of the state that the page of an entity shows, as JSON.
func (b *browser) field(name string) string {
	b.tb.Helper()
	return eval[string](b, fmt.Sprintf(`[...document.querySelectorAll("#state li")].find((e) => e.querySelector(".j-f")?.textContent === %q)?.querySelector(":scope > :not(.j-f)")?.textContent ?? ""`, name))
}

// A counter has a total.
type (
	event interface{ isEvent() }
	add   struct {
		eventsourcing.Command[counter, int]
		Amount int
	}
	added struct {
		Amount int
		Note   string
	}
	counter struct {
		Total int
		Notes []string
	}
)

func (added) isEvent() {}

func (c *counter) add(ctx *eventsourcing.Context[counter, event, int], a add) eventsourcing.Decision[counter, event, int] {
	return ctx.Persist(added{a.Amount, hostile}).ReplyFunc(func() int { return c.Total })
}

// program is a program without a cluster that has counters and a console.
type program struct {
	counters *eventsourcing.Local[counter, event]
	db       store.DB
	typ      eventsourcing.Type[counter, event]
	// forgetful makes counters ignore events, so that the states in memory differ from the events.
	forgetful atomic.Bool
	// now is the time of events, nil for the present.
	now     atomic.Pointer[time.Time]
	url     string // of the console
	console *console.Console
	opts    console.Options
	server  *httptest.Server
	serving atomic.Pointer[http.Handler] // answers all requests
}

// startProgram starts a program that ends with the test. The projections must end before.
func startProgram(t *testing.T, opts console.Options, projections func(p *program) []console.Projection) *program {
	t.Helper()
	p := &program{db: store.Of(inmem.NewJournal(), inmem.NewSnapshotStore())}
	p.typ = eventsourcing.Type[counter, event]{
		Name: "counter", Commands: eventsourcing.Commands(eventsourcing.On("add", (*counter).add)), Events: codec.Types(codec.Name[added]("added")),
		Apply: func(c *counter, e event) {
			if a, ok := e.(added); ok && !p.forgetful.Load() {
				c.Total += a.Amount
				c.Notes = append(c.Notes, a.Note)
			}
		},
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: p.db, Now: p.clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.Background()) })
	if p.counters, err = eventsourcing.Host(rt, p.typ); err != nil {
		t.Fatal(err)
	}
	cfg := console.AgentConfig{Runtime: rt, Types: []console.Type{console.TypeOf(p.typ)}, AllowActions: true}
	if projections != nil {
		cfg.Projections = projections(p)
	}
	agent, err := console.NewAgent(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close() })
	p.opts = opts
	p.opts.Admin, p.opts.Prefix, p.opts.AllowActions = agent, "/console/", true
	p.openConsole(t)
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*p.serving.Load()).ServeHTTP(w, r) }))
	t.Cleanup(func() { p.console.Close(); p.server.Close() })
	p.url = p.server.URL + "/console/"
	return p
}

func (p *program) clock() time.Time {
	if now := p.now.Load(); now != nil {
		return *now
	}
	return time.Now()
}

// openConsole opens a console, which answers all requests from now on.
func (p *program) openConsole(t *testing.T) {
	t.Helper()
	var err error
	if p.console, err = console.New(p.opts); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", p.console)
	p.answer(mux.ServeHTTP)
}

func (p *program) answer(handler http.HandlerFunc) {
	h := http.Handler(handler)
	p.serving.Store(&h)
}

// breakConsole ends the console and all its connections. Then, a handler answers all requests.
func (p *program) breakConsole(handler http.HandlerFunc) {
	p.answer(handler)
	p.console.Close()
	p.server.CloseClientConnections()
}

// hangUp ends a connection without a response.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func badGateway(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "no console", http.StatusBadGateway)
}

func anyone(*http.Request, string) (string, error) { return "ann", nil }

func (p *program) add(t *testing.T, id string, amount int) {
	t.Helper()
	if _, err := eventsourcing.Ask(t.Context(), p.counters.Ref(id), add{Amount: amount}); err != nil {
		t.Fatal(err)
	}
}

// A user signs in with a password to the console of a program without a cluster. IDs and notes stay
// text on all pages.
func TestPages(t *testing.T) {
	t.Parallel()
	passwords := filepath.Join(t.TempDir(), "passwords")
	if err := os.WriteFile(passwords, []byte(passwordLine), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, console.Options{PasswordFile: passwords}, nil)
	for n := range 5 {
		p.add(t, "one", n+1)
	}
	p.add(t, hostile, 1)
	b := openBrowser(t)

	b.open(p.url + "login")
	b.inspect("login")
	b.fill("login-user", "alice", "login-password", "secret")
	b.press("#login button")
	b.wait(`document.querySelector("#user")?.textContent === "alice"`)
	b.wait(painted)
	b.inspect("overview of a program")
	for _, page := range []string{"nodes", "shards", "data", "projections"} {
		b.open(p.url + page)
		b.inspect(page + " of a program")
	}
	b.open(p.url + "entities")
	b.shows("counter|" + hostile)
	b.inspect("entities of a program")

	entity := p.url + "entities/" + url.PathEscape("counter|"+hostile)
	b.open(entity)
	b.shows("counter|" + hostile)
	b.wait(fmt.Sprintf(`document.getElementById("history").textContent.includes(%q)`, hostile))
	b.inspect("entity of a program")
	p.forgetful.Store(true)
	p.add(t, hostile, 2) // the state in memory remains
	p.forgetful.Store(false)
	b.open(entity + "/live")
	b.wait(fmt.Sprintf(`document.querySelector("main .changes")?.textContent.includes(%q)`, hostile))
	b.shows("counter|" + hostile)
	b.inspect("live")

	b.open(p.url + "entities/" + url.PathEscape("counter|one"))
	for n := 5; n >= 1; n-- {
		b.run(set("#range", n))
		b.wait(fmt.Sprintf(`document.getElementById("state-at").textContent === "%d"`, n))
		if total := b.field("Total"); total != strconv.Itoa(n*(n+1)/2) {
			t.Errorf("after event %d the slider shows the total %q, want %d", n, total, n*(n+1)/2)
		}
	}

	b.open(p.url + "tail")
	p.add(t, hostile, 3)
	b.wait(fmt.Sprintf(`document.querySelector("#events .id")?.textContent === %q`, "counter|"+hostile))
	b.inspect("tail of a program")
	b.open(p.url + "journal")
	b.inspect("journal of a program")
	b.leave()
}

// painted is true when each chart has two points or more, and its canvas has a line in the colour of lines.
const painted = `(() => {
	const lines = [...document.querySelectorAll(".chart")].map((chart) => {
		const canvas = chart.querySelector("canvas");
		if (!canvas || JSON.parse(chart.dataset.points)[0].length < 2) return 0;
		const colour = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim().match(/[0-9a-f]{2}/g).map((x) => parseInt(x, 16));
		const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
		copy.drawImage(canvas, 0, 0);
		const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
		let pixels = 0;
		for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 60 && colour.every((c, n) => Math.abs(data[i + n] - c) < 12)) pixels++;
		return pixels;
	});
	return lines.length > 0 && lines.every((pixels) => pixels >= 10);
})()`

// A user filters the history of an entity by time, in UTC and in the zone of the browser.
func TestTimes(t *testing.T) {
	t.Parallel()
	p := startProgram(t, console.Options{Authorize: anyone}, nil)
	for n := range 3 {
		at := time.Date(2026, 3, 1, 3, 0, 10*n, 700_000_000, time.UTC)
		p.now.Store(&at)
		p.add(t, "one", n+1)
	}
	b := openBrowser(t)
	b.zone("America/New_York")
	rows := func(numbers, time string) {
		t.Helper()
		b.wait(fmt.Sprintf(`[...document.querySelectorAll("#history-rows > li")].map((e) => e.dataset.nr).join(" ") === %q`, numbers))
		if shown := eval[string](b, `document.querySelector("#history-rows .when").textContent`); shown != time {
			t.Errorf("the page shows the time %s, want %s", shown, time)
		}
	}
	filter := func(since, until, query string) {
		t.Helper()
		b.run(set(".filters [name=since]", since), set(".filters [name=until]", until))
		b.press(".filters button")
		b.wait(fmt.Sprintf(`location.search.includes(%q) && document.readyState === "complete"`, url.Values{"since": {query}}.Encode()))
	}
	field := func(name, zone, value string) {
		t.Helper()
		got := eval[string](b, fmt.Sprintf(`(() => { const e = document.querySelector(".filters [name=%s]"); return e.closest("label").textContent + " " + e.value; })()`, name))
		if !strings.Contains(got, zone) || !strings.HasSuffix(got, " "+value) {
			t.Errorf("the field %s shows %q, want %s in %s", name, got, value, zone)
		}
	}
	b.open(p.url + "entities/counter%7Cone")
	rows("3 2 1", "2026-03-01 03:00:20")
	filter("2026-03-01T03:00:10", "", "2026-03-01T03:00:10")
	rows("3 2", "2026-03-01 03:00:20")
	b.press("#tz")
	rows("3 2", "2026-02-28 22:00:20")
	field("since", "local", "2026-02-28T22:00:10")
	b.run(set("#range", 1))
	b.wait(`document.getElementById("state-at").textContent === "1"`)
	filter("2026-02-28T22:00:09", "2026-02-28T22:00:10", "2026-03-01T03:00:09")
	rows("2", "2026-02-28 22:00:10")
	field("since", "local", "2026-02-28T22:00:09")
	field("until", "local", "2026-02-28T22:00:10")
	if at := eval[string](b, `document.getElementById("state-at").textContent`); at != "1" {
		t.Errorf("after the filter the page shows the state after event %s, want 1", at)
	}
	b.press("#tz")
	rows("2", "2026-03-01 03:00:10")
	field("until", "UTC", "2026-03-01T03:00:10")
	b.leave()
}

// Each key of the list of keys works.
func TestKeys(t *testing.T) {
	t.Parallel()
	p := startProgram(t, console.Options{Authorize: anyone}, nil)
	for n := range 3 {
		p.add(t, "one", n+1)
	}
	b := openBrowser(t)
	b.open(p.url)
	names := eval[map[string]string](b, `Object.fromEntries([...document.querySelectorAll("#nav a")].map((a) => [a.dataset.key, a.id]))`)
	if len(names) != 8 {
		t.Errorf("the pages have the keys %v, want 8", names)
	}
	for key, name := range names {
		// Both keys in one step, because the second one must follow soon.
		b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`for (const key of ["g", %q]) document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }))`, key)))
		b.wait(fmt.Sprintf(`document.getElementById(%q)?.getAttribute("aria-current") === "page" && document.readyState === "complete"`, name))
	}
	typed := func(page, selector string) {
		t.Helper()
		b.open(p.url + page)
		b.wait(`document.readyState === "complete"`)
		b.run(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))
		b.keys("/")
		b.wait(fmt.Sprintf(`document.activeElement.matches(%q)`, selector))
		b.keys("note")
		if text := eval[string](b, `document.activeElement.value`); text != "note" {
			t.Errorf("after / the field of the page %s contains %q, want the keys after it", page, text)
		}
	}
	typed("entities", "#prefix")
	typed("tail", "#tag")
	typed("entities/counter%7Cone", ".filters [name=manifest]")
	b.keys("u?")
	if text := eval[string](b, `document.activeElement.value`); text != "noteu?" {
		t.Errorf("the field contains %q, want all keys", text)
	}
	b.run(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))

	at := func(n string) string { return fmt.Sprintf(`document.getElementById("state-at").textContent === %q`, n) }
	b.keys(kb.ArrowLeft)
	b.wait(at("2"))
	b.keys(kb.ArrowLeft + kb.ArrowLeft) // event 1 is the first one
	b.wait(at("1"))
	b.keys(kb.ArrowRight)
	b.wait(at("2"))

	const folded = `document.querySelectorAll("#main :is(details.event, details.j):not([open])").length`
	all := eval[int](b, folded)
	if n := eval[int](b, `document.querySelectorAll("#history-rows > li details.event:not([open])").length`); n != 3 || all < 4 {
		t.Errorf("the page has %d folded elements and %d folded events, want all folded", all, n)
	}
	b.keys("u")
	b.wait(folded + " === 0")
	b.keys(kb.ArrowRight)
	b.wait(at("3") + ` && document.querySelector("#state details.j") && ` + settled)
	if n := eval[int](b, folded); n != 0 {
		t.Errorf("%d elements of an unfolded page are folded after the slider has moved", n)
	}
	b.press("[data-unfold]")
	b.wait(folded + " >= 4")
	b.keys(kb.ArrowLeft)
	b.wait(at("2") + ` && document.querySelector("#state details.j") && ` + settled)
	if n := eval[int](b, `document.querySelectorAll("#main :is(details.event, details.j)[open]").length`); n != 0 {
		t.Errorf("%d elements of a folded page are unfolded after the slider has moved", n)
	}

	b.keys("?")
	b.wait(`document.querySelector("#keys[open]")`)
	b.inspect("keys")
	b.keys(kb.Escape)
	b.wait(`!document.querySelector("#keys[open]")`)
	b.leave()
}

// The page of an entity compares two events, and shows the state without an event.
func TestDifference(t *testing.T) {
	t.Parallel()
	p := startProgram(t, console.Options{Authorize: anyone}, nil)
	for n := range 4 {
		p.add(t, "one", n+1)
	}
	b := openBrowser(t)
	b.open(p.url + "entities/counter%7Cone")
	difference := func(title, before, after string) {
		t.Helper()
		b.wait(fmt.Sprintf(`document.getElementById("difference-title").textContent === %q && %s`, title, settled))
		got := eval[[]string](b, `(() => { const row = [...document.querySelectorAll("#difference tbody tr")].find((r) => r.querySelector("th").textContent.includes("Total")); return [".before", ".after"].map((s) => row.querySelector(s).textContent); })()`)
		if !slices.Equal(got, []string{before, after}) {
			t.Errorf("%s: the total has the values %q, want %s and %s", title, got, before, after)
		}
	}
	difference("Changed by event 4", "6", "10")
	b.run(set("#compare", 1))
	difference("From event 1 to event 4", "1", "10")
	b.run(set("#range", 3))
	difference("From event 1 to event 3", "1", "6")
	b.run(set("#compare", ""))
	difference("Changed by event 3", "3", "6")
	b.run(set("#without", 2))
	difference("Without event 2, after event 3", "6", "4")
	b.wait(`document.getElementById("permalink").search === location.search`)
	b.open(eval[string](b, `document.getElementById("permalink").href`))
	difference("Without event 2, after event 3", "6", "4")
	b.leave()
}

// numbers is the list of the events that a tail shows, the newest first.
const numbers = `[...document.querySelectorAll("#events > li")].map((e) => e.dataset.nr).join(" ")`

// disconnected is true while a page shows that it has lost its console.
const disconnected = `document.getElementById("disconnected").textContent.startsWith("Disconnected") && document.body.classList.contains("stale")`

const connected = `document.getElementById("disconnected").textContent === "" && !document.body.classList.contains("stale")`

// lost requires that a browser has reported no other problem than lost connections to a stream.
func (b *browser) lost() {
	b.tb.Helper()
	for _, problem := range b.reported() {
		if !strings.Contains(problem, "/console/stream?") {
			b.tb.Error(problem)
		}
	}
}

// A paused tail shows new events when it is resumed. A tail that loses its console shows all events
// once when another console answers: if it gets no response, and if a proxy responds with an error.
func TestTail(t *testing.T) {
	t.Parallel()
	p := startProgram(t, console.Options{Authorize: anyone, Interval: 100 * time.Millisecond}, nil)
	p.add(t, "one", 1)
	b := openBrowser(t)
	b.open(p.url + "tail")
	p.add(t, "one", 2)
	p.add(t, "one", 3)
	b.wait(numbers + ` === "3 2"`)

	b.run(chromedp.Evaluate[chromedp.Void](`document.addEventListener("htmx:sseBeforeMessage", (e) => { if (e.target.id === "live") window.received = e.detail.data; })`))
	b.press("#pause")
	p.add(t, "one", 4)
	p.add(t, "one", 5)
	b.wait(`window.received?.includes('data-nr="5"')`)
	if shown := eval[string](b, numbers); shown != "3 2" {
		t.Errorf("a paused tail shows the events %s, want 3 2", shown)
	}
	b.press("#pause")
	b.wait(numbers + ` === "5 4 3 2"`)
	p.add(t, "one", 6)
	b.wait(numbers + ` === "6 5 4 3 2"`)
	b.check("a pause")

	want, n := "6 5 4 3 2", 6
	add := func() {
		t.Helper()
		n++
		want = strconv.Itoa(n) + " " + want
		p.add(t, "one", n)
	}
	for _, test := range []struct {
		broken http.HandlerFunc
		await  bool // a request during the outage
	}{{hangUp, false}, {badGateway, true}} {
		requests := make(chan struct{}, 1000)
		p.breakConsole(func(w http.ResponseWriter, r *http.Request) {
			requests <- struct{}{}
			test.broken(w, r)
		})
		b.wait(disconnected)
		if shown := eval[string](b, numbers); shown != want {
			t.Errorf("a disconnected tail shows the events %s, want %s", shown, want)
		}
		add()
		if test.await {
			<-requests
		}
		p.openConsole(t)
		b.wait(connected + " && " + numbers + ` === "` + want + `"`)
		add()
		b.wait(numbers + ` === "` + want + `"`)
	}
	b.leave()
	b.lost()
}

// A page that loses its console keeps the last known state, shows that it is disconnected, and recovers.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	p := startProgram(t, console.Options{Authorize: anyone, Interval: 100 * time.Millisecond}, nil)
	p.add(t, "one", 1)
	b := openBrowser(t)
	b.open(p.url)
	const resident = `document.querySelector('tr[data-type="counter"] td').textContent`
	b.wait(resident + ` === "1"`)
	p.breakConsole(hangUp)
	b.wait(disconnected)
	if n := eval[string](b, resident); n != "1" {
		t.Errorf("the disconnected page shows %s entities, want the last known state", n)
	}
	b.examine("a page without a connection")
	p.add(t, "two", 1)
	p.openConsole(t)
	b.wait(connected + " && " + resident + ` === "2"`)
	b.leave()
	b.lost()
}

// passwordLine is a line of a password file: the user alice, the password secret, the right to act.
const passwordLine = "alice:$2b$04$wR.3brmakR79qzY3UrP8oeeEtmmQoIQQXBPN9niB8vUiMPwyemKGi:act\n"

// readModel holds the amounts of all events. Its handler fails while it is broken.
type readModel struct {
	mu      sync.Mutex
	broken  bool
	amounts map[string]int // by persistence ID and number of the event
	cleared chan struct{}
}

func (m *readModel) handle(_ context.Context, e projection.Envelope[event]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return errors.New("the table is missing")
	}
	if a, ok := e.Event.(added); ok {
		m.amounts[fmt.Sprint(e.ID, e.SequenceNr)] = a.Amount
	}
	return nil
}

func (m *readModel) clear(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.amounts)
	m.cleared <- struct{}{}
	return nil
}

func (m *readModel) setBroken(broken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = broken
}

func (m *readModel) sorted() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Values(m.amounts))
}

// An operator pauses a projection. Its handler breaks: the console names the event, and links to it.
// After the repair, the projection continues. A rebuild clears the read model and fills it again.
func TestProjection(t *testing.T) {
	t.Parallel()
	model := &readModel{amounts: map[string]int{}, cleared: make(chan struct{}, 100)}
	p := startProgram(t, console.Options{}, func(p *program) []console.Projection {
		totals, err := projection.New(projection.Config[event]{
			Name: "totals", Journal: p.db.Journal(), Events: p.typ.Events, MinBackoff: 100 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
			Handler: projection.AtLeastOnce[event]{Store: &projection.Memory{}, Handle: model.handle, Clear: model.clear},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- totals.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the projection ended: %v", err)
			}
		})
		return []console.Projection{totals}
	})
	for n := range 3 {
		p.add(t, "one", n+1)
	}
	b := openBrowser(t)
	b.open(p.console.LoginURL(strings.TrimSuffix(p.url, "/console/")))

	b.open(p.url + "projections")
	b.wait(`document.querySelector('[data-projection="totals"]')?.textContent.includes("caught up") && ` + fact("Handled") + ` === "3"`)
	b.confirm(`[data-act="pause"]`)
	b.wait(`document.querySelector('[data-projection="totals"]').dataset.paused === "true"`)
	b.wait(headline("Projection totals is paused"))
	model.setBroken(true)
	p.add(t, "one", 4)
	p.add(t, "one", 5)
	b.wait(`/[1-9]/.test(` + fact("Lag") + `)`) // the projection has read the event
	if got := model.sorted(); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("the paused projection has handled %v, want the events before the pause", got)
	}

	b.confirm(`[data-act="resume"]`)
	b.wait(headline("Projection totals fails on event 4 of counter|one: the table is missing"))
	b.wait(`document.querySelector('[data-projection="totals"] .notice.bad a')`)
	b.inspect("projections")
	link := eval[string](b, `document.querySelector('[data-projection="totals"] .notice.bad a').href`)
	b.open(link)
	b.wait(`document.querySelector("h1").textContent === "counter|one" && document.getElementById("state-at").textContent === "4"`)

	model.setBroken(false)
	b.open(p.url + "projections")
	const well = `!document.querySelector('[data-projection="totals"] .notice.bad') && document.querySelector('[data-projection="totals"]')?.textContent.includes("caught up")`
	b.wait(well + " && " + fact("Lag") + ` === "0 s"`)
	b.wait(headline("All is well"))
	if got := model.sorted(); !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
		t.Errorf("the repaired projection has handled %v, want all events", got)
	}

	before := eval[int](b, "+"+fact("Handled"))
	b.confirm(`[data-act="rebuild"]`)
	select {
	case <-model.cleared:
	case <-time.After(patience):
		t.Fatal("the rebuild has not cleared the read model")
	}
	b.wait(fmt.Sprintf(`+%s >= %d && %s && %s === "0 s"`, fact("Handled"), before+5, well, fact("Lag")))
	if got := model.sorted(); !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
		t.Errorf("the rebuilt projection has handled %v, want all events", got)
	}
	b.check("a rebuild")
	b.leave()
}

// fact is the figure of a projection on its page, by its title.
func fact(title string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".projection .strip dt")].find((e) => e.textContent === %q)?.nextElementSibling.textContent`, title)
}

// headline is true when the first line of a page begins with a text.
func headline(text string) string {
	return fmt.Sprintf(`document.getElementById("headline")?.textContent.startsWith(%q)`, text)
}
