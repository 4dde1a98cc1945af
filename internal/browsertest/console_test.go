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

	"github.com/chromedp/chromedp"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/store"
)

// set moves a slider like a user.
func set(id string, value int) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{const e = document.getElementById(%q); e.value = "%d"; e.dispatchEvent(new Event("input", {bubbles: true}));}`, id, value))
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
		b.run(set("range", i+1))
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
	b.press("#dialog #confirm-yes")
	b.press("#dialog #done [data-close]")
	b.wait(cells("branch-2") + " === 0")
	for _, shard := range moving {
		b.wait(fmt.Sprintf(`["branch-1", "branch-3"].includes(document.querySelector('a.cell[data-shard=%q]')?.dataset.node)`, shard))
	}
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
	url       string // of the console
	console   *console.Console
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
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: p.db})
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
	opts.Admin, opts.Prefix, opts.AllowActions = agent, "/console/", true
	if p.console, err = console.New(opts); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", p.console)
	server := httptest.NewServer(mux)
	t.Cleanup(func() { p.console.Close(); server.Close() })
	p.url = server.URL + "/console/"
	return p
}

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
		b.run(set("range", n))
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
