// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// An account has a balance and remembers its last deposit.
type (
	event   interface{ isEvent() }
	deposit struct {
		eventsourcing.Command[account, int]
		Amount int
		Memo   string
	}
	deposited struct {
		Amount int
		Memo   string
		Where  map[string]string
	}
	account struct {
		Balance int
		Secret  string
		Last    deposited
	}
)

func (deposited) isEvent() {}

func (a *account) deposit(ctx *eventsourcing.Context[account, event, int], c deposit) eventsourcing.Decision[account, event, int] {
	return ctx.Persist(deposited{c.Amount, c.Memo, map[string]string{"branch": "Taipei"}}).ReplyFunc(func() int { return a.Balance })
}

func (a *account) apply(e event) {
	if d, ok := e.(deposited); ok {
		a.Balance, a.Secret, a.Last = a.Balance+d.Amount, "4711", d
	}
}

func accountType() eventsourcing.Type[account, event] {
	return eventsourcing.Type[account, event]{
		Name: "account", Commands: eventsourcing.Commands(eventsourcing.On("deposit", (*account).deposit)), Apply: (*account).apply,
		Events: codec.Types(codec.Name[deposited]("deposited")), Tags: func(*account, event) []string { return []string{"money"} },
	}
}

// bank is a program without a cluster.
type bank struct {
	tb      testing.TB
	journal *inmem.Journal
	now     atomic.Pointer[time.Time] // the time of events, nil for the present
	db      store.DB
	runtime *eventsourcing.Runtime
	ref     func(id string) eventsourcing.Ref[account]
}

func newBank(tb testing.TB) *bank {
	tb.Helper()
	b := &bank{tb: tb, journal: inmem.NewJournal()}
	b.db = store.Of(b.journal, inmem.NewSnapshotStore())
	var err error
	if b.runtime, err = eventsourcing.Open(eventsourcing.Config{Store: b.db, Now: b.clock}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if failed := b.runtime.Close(context.Background()); failed != nil {
			tb.Error(failed)
		}
	})
	accounts, err := eventsourcing.Host(b.runtime, accountType())
	if err != nil {
		tb.Fatal(err)
	}
	b.ref = accounts.Ref
	return b
}

func (b *bank) clock() time.Time {
	if now := b.now.Load(); now != nil {
		return *now
	}
	return time.Now()
}

func (b *bank) deposit(id string, amounts ...int) {
	b.tb.Helper()
	for _, amount := range amounts {
		if _, err := eventsourcing.Ask(b.tb.Context(), b.ref(id), deposit{Amount: amount, Memo: hostile}); err != nil {
			b.tb.Fatal(err)
		}
	}
}

// browse opens a console of the bank.
func (b *bank) browse(change ...func(cfg *console.AgentConfig, opts *console.Options)) *browser {
	b.tb.Helper()
	cfg := console.AgentConfig{Runtime: b.runtime, Types: []console.Type{console.TypeOf(accountType())}, AllowActions: true}
	opts := console.Options{Authorize: anyone, AllowActions: true}
	for _, f := range change {
		f(&cfg, &opts)
	}
	agent, err := console.NewAgent(cfg)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() {
		if failed := agent.Close(); failed != nil {
			b.tb.Error(failed)
		}
	})
	opts.Admin = agent
	return newBrowser(b.tb, open(b.tb, opts))
}

// text removes the markup.
func text(html string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(html, " ")), " ")
}

// between returns the part of a page from one text to another one.
func between(page, from, to string) string {
	_, page, _ = strings.Cut(page, from)
	page, _, _ = strings.Cut(page, to)
	return page
}

func contains(t *testing.T, name, page string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("%s: no %q in %s", name, w, page)
		}
	}
}

func TestEntityPage(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.deposit("7", 10, 20, 30)
	web := b.browse()
	page, status := web.page("/entities/account%7C7")
	if status != http.StatusOK {
		t.Fatalf("the page has the status %d", status)
	}
	if strings.Contains(page, "<script>alert") {
		t.Error("the page contains a payload as markup")
	}
	rows := regexp.MustCompile(`<li value="(\d+)" data-nr="\d+"`).FindAllStringSubmatch(page, -1)
	if len(rows) != 3 || rows[0][1] != "3" || rows[2][1] != "1" {
		t.Errorf("the history has the rows %v, want the events 3 to 1", rows)
	}
	contains(t, "state", text(between(page, `id="state"`, "</section>")), "Balance 60", "Last")
	contains(t, "difference", text(between(page, `id="difference"`, "</section>")), "Changed by event 3", "Balance 30 60", "Last.Amount 20 30")
	contains(t, "slider", page, `min="1" max="3" value="3"`, `/entities/account%7C7?at=3"`)

	// any number, two numbers, and one event less
	page, _ = web.page("/entities/account%7C7?at=2")
	contains(t, "at 2", text(between(page, `id="moment"`, "</section>")), "State after event 2", "Balance 30")
	page, _ = web.page("/entities/account%7C7?at=3&compare=1")
	contains(t, "compare", text(between(page, `id="difference"`, "</section>")), "From event 1 to event 3", "Balance 10 60")
	page, _ = web.page("/entities/account%7C7?at=3&without=2")
	contains(t, "without", text(between(page, `id="difference"`, "</section>")), "Without event 2, after event 3", "Balance 60 40")

	// the slider replaces a part and its address
	r := web.get("/entities/account%7C7/state?at=1&highest=3", header("Hx-Request", "true"))
	contains(t, "moment", text(r.text), "State after event 1", "Balance 10")
	if r.header.Get("Hx-Replace-Url") != "/entities/account%7C7?at=1" || strings.Contains(r.text, "<html") {
		t.Errorf("the slider got the address %q and %s", r.header.Get("Hx-Replace-Url"), r.text)
	}
	if r = web.get("/entities/account%7C7/state?at=1"); r.header.Get("Location") != "/entities/account%7C7?at=1" {
		t.Errorf("the state without JavaScript leads to %q, want the page", r.header.Get("Location"))
	}

	// memory and events
	r = web.get("/entities/account%7C7/live", header("Hx-Request", "true"))
	contains(t, "live", text(r.text), "The state in memory is the state that the events give after event 3")

	// mistakes
	page, _ = web.page("/entities/account%7Cmissing")
	contains(t, "missing", text(page), "no event has the persistence ID")
	page, _ = web.page("/entities/account%7C7?at=x")
	contains(t, "number", text(page), "is no number of an event")
	page, _ = web.page("/entities/account%7C7?since=yesterday")
	contains(t, "time", text(page), "is no time such as")
}

// The history has pages and filters.
func TestHistory(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i := range 120 {
		b.deposit("7", i+1)
	}
	web := b.browse()
	page, _ := web.page("/entities/account%7C7")
	if n := strings.Count(page, `<details class="event"`); n != 50 {
		t.Errorf("the first page has %d events, want 50", n)
	}
	older := regexp.MustCompile(`id="more">.*?href="([^"]+)"`).FindStringSubmatch(page)
	if older == nil {
		t.Fatal("the page has no link to older events")
	}
	address := strings.ReplaceAll(older[1], "&amp;", "&")
	part, _ := web.page(address, header("Hx-Request", "true"))
	if n := strings.Count(part, `<details class="event"`); n != 50 || !strings.Contains(part, `<li value="70"`) || strings.Contains(part, "<html") {
		t.Errorf("the next part has %d events, want those from 70 on", n)
	}
	if page, _ = web.page(address); !strings.Contains(page, "<html") {
		t.Error("the next page without JavaScript is no page")
	}
	page, _ = web.page("/entities/account%7C7?text=" + url.QueryEscape(`"Amount":77,`))
	if n := strings.Count(page, `<details class="event"`); n != 1 || !strings.Contains(page, `<li value="77"`) {
		t.Errorf("the filter by text finds %d events, want event 77", n)
	}
	page, _ = web.page("/entities/account%7C7?manifest=withdrawn")
	contains(t, "filter by type", text(page), "No event matches.")
	page, _ = web.page("/entities/account%7C7?until=2001-01-01T00:00:00")
	contains(t, "filter by time", text(page), "No event matches.")
}

// The filters by time contain whole seconds, as the page shows them.
func TestHistoryByTime(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	at := time.Date(2026, 1, 31, 15, 4, 5, 700_000_000, time.UTC)
	b.now.Store(&at)
	b.deposit("7", 10)
	web := b.browse()
	for query, found := range map[string]bool{
		"since=2026-01-31T15:04:05": true, "since=2026-01-31T15:04:06": false, "until=2026-01-31T15:04:05": true, "until=2026-01-31T15:04:04": false,
		"since=2026-01-31T16:04:05%2B01:00": true, "since=2026-01-31T14:04:06-01:00": false, "since=2026-01-31T15:04": true, "since=2026-02-01": false,
	} {
		page, _ := web.page("/entities/account%7C7?" + query)
		if n := strings.Count(page, `<details class="event"`); (n == 1) != found {
			t.Errorf("the filter %s finds %d events, want the event: %v", query, n, found)
		}
	}
	page, _ := web.page("/entities/account%7C7?since=2026-01-31T16:04:05.9%2B01:00")
	contains(t, "field", page, `name="since" value="2026-01-31T15:04:05"`)
}

// A journal contains an event that cannot be decoded, and one of a type that the program does not
// contain.
func TestUndecodableEvents(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.deposit("7", 10)
	for id, e := range map[string]journal.Event{
		"account|8": {SequenceNr: 1, Manifest: "deposited", Payload: []byte{0xc1, 0xff}},
		"cart|1":    {SequenceNr: 1, Manifest: "added", Payload: []byte("{}")},
	} {
		if err := errors.Join(b.journal.Append(t.Context(), []journal.Write{{ID: id, Writer: "w", Events: []journal.Event{e}}})...); err != nil {
			t.Fatal(err)
		}
	}
	web := b.browse()
	page, status := web.page("/entities/account%7C8")
	if row := between(page, `<li value="1"`, "</li>"); status != http.StatusOK || !strings.Contains(row, "✕") || !strings.Contains(row, "deposited") {
		t.Errorf("the damaged event has the row %s", row)
	}
	page, _ = web.page("/entities/cart%7C1")
	contains(t, "unknown type", text(page), "added", "does not contain the Go type")
}

func TestEntityList(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i := range 130 {
		b.deposit(fmt.Sprintf("%03d", i), 1)
	}
	web := b.browse()
	page, _ := web.page("/entities?type=account")
	if n := strings.Count(page, `href="/entities/account%7C`); n != 100 {
		t.Errorf("the first page has %d entities, want 100", n)
	}
	contains(t, "list", text(page), "account 130 in memory")
	next := regexp.MustCompile(`id="next-page" rel="next" href="([^"]+)"`).FindStringSubmatch(page)
	if next == nil {
		t.Fatal("the list has no next page")
	}
	page, _ = web.page(strings.ReplaceAll(next[1], "&amp;", "&"))
	if n := strings.Count(page, `href="/entities/account%7C`); n != 30 || !strings.Contains(page, "account%7C129") {
		t.Errorf("the second page has %d entities, want 30", n)
	}
	page, _ = web.page("/entities?type=account&prefix=01")
	if n := strings.Count(page, `href="/entities/account%7C`); n != 10 {
		t.Errorf("the search finds %d entities, want 10", n)
	}
}

// The lists of types count the entities in the memory of all nodes once. If no node reports its runtime,
// they count those of the node that lists the types.
func TestEntitiesInMemory(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]string{
		"12": `{"runtime":{"hosts":true,"entities":[{"type":"account","resident":6}]}}`, // each of two nodes
		"6":  `{"error":"unknown service","no_service":true}`,
	} {
		admin := newNodes()
		admin.set("inspect types", `{"types":{"types":[{"name":"account","linked":true,"resident":6}],"journal":true,"lists":true}}`)
		admin.set("inspect ids", `{"ids":{}}`)
		admin.set("runtime status", status)
		web := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
		page, _ := web.page("/entities")
		contains(t, "entities", text(page), "account "+want+" in memory")
		page, _ = web.page("/journal")
		contains(t, "journal", text(between(page, "Entity types of the program", "</table>")), "part of the program "+want)
	}
}

// The comparison of a state in memory and the verification name the node that was asked.
func TestPagesNameTheirNode(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("inspect live", `{"live":{"presence":"absent"}}`)
	admin.set("inspect types", `{"types":{}}`)
	admin.set("inspect verify", `{"verify":{"started":"2026-01-31T15:04:05Z"}}`)
	web := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
	page, _ := web.page("/entities/account%7C7/live?node=b")
	contains(t, "live", text(page), "The entity is not in memory on b")
	page, _ = web.page("/journal")
	contains(t, "verification", text(between(page, `id="verify"`, "</section>")), "Node a")
}

// BenchmarkLongHistory opens the page of an entity with 100,000 events and no snapshot in a new console, as
// after a restart, and then moves its slider to random numbers. It reports the longest time until a page
// was complete, and the 95th percentile of the slider.
func BenchmarkLongHistory(b *testing.B) {
	const n = 100_000
	for name, reopen := range map[string]func(dir string) (store.DB, error){
		"inmem":   func(string) (store.DB, error) { return inmem.Open() },
		"leveldb": func(dir string) (store.DB, error) { return leveldb.Open(dir, leveldb.Config{}) },
	} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			db, err := reopen(dir)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			deposits(b, db.Journal(), "account|1", n)
			if name == "leveldb" { // read from the files
				if err = db.Close(); err == nil {
					db, err = reopen(dir)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			var opened, moved []time.Duration
			for i := uint64(0); b.Loop(); {
				agent, err := console.NewAgent(console.AgentConfig{Store: db, Types: []console.Type{console.TypeOf(accountType())}})
				if err != nil {
					b.Fatal(err)
				}
				web := newBrowser(b, open(b, console.Options{Admin: agent, Authorize: anyone}))
				began := time.Now()
				page, status := web.page("/entities/account%7C1")
				opened = append(opened, time.Since(began))
				if rows := strings.Count(page, `<details class="event"`); status != http.StatusOK || rows != 50 || !strings.Contains(page, `<div id="state">`) {
					b.Fatalf("the page has the status %d and %d events: %s", status, rows, page)
				}
				for range 20 {
					i++
					at := i*2_654_435_761%n + 1
					began = time.Now()
					part, status := web.page(fmt.Sprintf("/entities/account%%7C1/state?at=%d&highest=%d", at, n), header("Hx-Request", "true"))
					moved = append(moved, time.Since(began))
					if status != http.StatusOK || !strings.Contains(part, `<div id="state">`) {
						b.Fatalf("the slider at %d has the status %d: %s", at, status, part)
					}
				}
				if err = agent.Close(); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(moved)
			milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(milliseconds(slices.Max(opened)), "open-max-ms")
			b.ReportMetric(milliseconds(moved[len(moved)*95/100]), "slider-p95-ms")
		})
	}
}

// deposits stores n events without the entity.
func deposits(b *testing.B, j journal.Journal, id string, n int) {
	b.Helper()
	events := accountType().Events
	batch := make([]journal.Event, 0, 1000)
	for i := 1; i <= n; i++ {
		manifest, payload, err := events.Encode(deposited{Amount: i, Memo: "rent", Where: map[string]string{"branch": "Taipei"}})
		if err != nil {
			b.Fatal(err)
		}
		batch = append(batch, journal.Event{SequenceNr: uint64(i), Time: time.Unix(int64(i), 0).UTC(), Manifest: manifest, Payload: payload})
		if len(batch) == cap(batch) || i == n {
			if err = errors.Join(j.Append(b.Context(), []journal.Write{{ID: id, Writer: "w", Expect: uint64(i - len(batch)), Events: batch}})...); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}

// The agent replaces fields before they leave the process.
func TestRedaction(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.deposit("7", 10)
	web := b.browse(func(cfg *console.AgentConfig, _ *console.Options) {
		cfg.Redact = func(f console.Field) bool { return len(f.Path) == 1 && f.Path[0] == "Secret" }
	})
	page, _ := web.page("/entities/account%7C7")
	if strings.Contains(page, "4711") || !strings.Contains(page, "(redacted)") {
		t.Error("the page contains a field that the agent must replace")
	}
	contains(t, "state", text(page), "Balance 10")
}

func TestAgentNeedsADatabase(t *testing.T) {
	t.Parallel()
	if _, err := console.NewAgent(console.AgentConfig{}); !errors.Is(err, console.ErrInvalid) || !strings.Contains(err.Error(), "AgentConfig.Store") {
		t.Errorf("NewAgent returned %v, want ErrInvalid with the field Store", err)
	}
	_, err := console.NewAgent(console.AgentConfig{Runtime: newBank(t).runtime, Types: []console.Type{console.TypeOf(accountType()), console.TypeOf(accountType())}})
	if !errors.Is(err, console.ErrInvalid) || !strings.Contains(err.Error(), "AgentConfig.Types") {
		t.Errorf("NewAgent with a type twice returned %v, want ErrInvalid with the field Types", err)
	}
}

// An agent answers for its own process only.
func TestAgentAnswersForItself(t *testing.T) {
	t.Parallel()
	agent, err := console.NewAgent(console.AgentConfig{Runtime: newBank(t).runtime})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close() }()
	if _, err := agent.Ask(t.Context(), "runtime", transport.AdminRead, "other", []byte(`{"service":"runtime","command":"status"}`)); !errors.Is(err, transport.ErrNoNode) {
		t.Errorf("a request to another node: %v, want ErrNoNode", err)
	}
}

// A program without a cluster has all pages.
func TestPagesWithoutCluster(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.deposit("7", 10)
	web := b.browse()
	for path, want := range map[string]string{
		"/": "All is well: 1 entity in memory.", "/nodes": "runs without a cluster", "/shards": "No node has sharded entities", "/data": "No node has a replicator",
		"/projections": "No agent shows a projection", "/tail": "No event since", "/journal": "mem-1",
	} {
		page, status := web.page(path)
		if status != http.StatusOK || strings.Contains(page, `role="alert"`) {
			t.Errorf("%s has the status %d: %s", path, status, text(page))
		}
		contains(t, path, text(page), want)
	}
}

// printer is a projection that fails on one entity until it is mended.
type printer struct {
	mu     sync.Mutex
	broken bool
}

func (p *printer) handle(_ context.Context, e projection.Envelope[event]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken && e.EntityID() == "7" {
		return errors.New("out of paper")
	}
	return nil
}

// await reads a page until it contains a text.
func (b *browser) await(path, want string) string {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(b.tb.Context(), 2*time.Minute)
	defer cancel()
	for {
		page, _ := b.page(path)
		if strings.Contains(page, want) {
			return page
		}
		if ctx.Err() != nil {
			b.tb.Fatalf("%s never contains %q: %s", path, want, text(page))
		}
	}
}

func TestProjectionPage(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	p := &printer{broken: true}
	statements, err := projection.New(projection.Config[event]{
		Name: "statements", Journal: b.journal, Criteria: journal.Criteria{Types: []string{"account"}}, Events: accountType().Events,
		Handler: projection.AtLeastOnce[event]{Store: new(projection.Memory), Handle: p.handle},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = statements.Run(ctx) })
	defer running.Wait()
	defer stop()
	b.deposit("7", 10)
	web := b.browse(func(cfg *console.AgentConfig, opts *console.Options) {
		cfg.Projections, opts.Interval = []console.Projection{statements}, 100*time.Millisecond
	})
	page := web.await("/projections", "out of paper")
	contains(t, "failure", page, `href="/entities/account%7C7?at=1"`, `data-projection="statements"`)
	contains(t, "headline", text(page), "Projection statements fails on event 1 of account|7: out of paper")
	for _, act := range []string{"pause", "resume"} {
		if answer, status := web.post("/act", url.Values{"action": {"projection." + act}, "projection": {"statements"}}); status != http.StatusOK {
			t.Fatalf("%s: %s", act, text(answer))
		}
		want := map[string]string{"pause": `data-paused="true"`, "resume": `data-paused="false"`}[act]
		web.await("/projections", want)
		if paused := statements.Paused(); paused != (act == "pause") {
			t.Errorf("after %s the projection is paused: %v", act, paused)
		}
	}
	if answer, status := web.post("/act", url.Values{"action": {"projection.rebuild"}, "projection": {"statements"}}); status != http.StatusBadGateway {
		t.Errorf("a rebuild that the handler does not support has the status %d: %s", status, text(answer))
	}
	if answer, status := web.post("/act", url.Values{"action": {"projection.pause"}, "projection": {"other"}}); status != http.StatusBadGateway {
		t.Errorf("a pause of an unknown projection has the status %d: %s", status, text(answer))
	}
}

// An agent without AllowActions refuses an action that the console permits.
func TestAgentRefusesActions(t *testing.T) {
	t.Parallel()
	web := newBank(t).browse(func(cfg *console.AgentConfig, _ *console.Options) { cfg.AllowActions = false })
	if page, status := web.post("/act", url.Values{"action": {"journal.verify"}}); status != http.StatusBadGateway || !strings.Contains(page, "permits no actions") {
		t.Errorf("the action has the status %d: %s", status, text(page))
	}
}

func TestVerification(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.deposit("7", 10, 20)
	web := b.browse(func(_ *console.AgentConfig, opts *console.Options) { opts.Interval = 100 * time.Millisecond })
	if page, status := web.post("/act", url.Values{"action": {"journal.verify"}}); status != http.StatusOK {
		t.Fatalf("the start has the status %d: %s", status, text(page))
	}
	page := web.await("/journal", "no problem found")
	contains(t, "counts", text(between(page, "By type", "</table>")), "account 1 2")
}

// Charts have a point for each poll, also if two polls are less than a second apart.
func TestChartPoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		web := newBrowser(t, open(t, console.Options{Admin: newNodes(), Authorize: anyone, Interval: 100 * time.Millisecond}))
		_, _ = web.page("/")
		time.Sleep(200 * time.Millisecond)
		page, _ := web.page("/")
		if points := between(page, `data-points="[[`, "]"); points != "946684800,946684800.2" {
			t.Errorf("the chart has points at %s, want two that are 200 ms apart", points)
		}
	})
}

// New events appear, the filters select them, and a page resumes from its offset.
func TestTail(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.deposit("1", 10)
	web := b.browse(func(_ *console.AgentConfig, opts *console.Options) { opts.Interval = 100 * time.Millisecond })
	page, _ := web.page("/tail") // begins at the end
	contains(t, "begin", text(page), "No event since this page was opened.")
	resume := regexp.MustCompile(`id="resume-link" href="([^"]+)"`).FindStringSubmatch(page)
	if resume == nil {
		t.Fatal("the page has no address of its offset")
	}
	b.deposit("2", 20)
	b.deposit("3", 30)
	page = web.await("/tail", "account|3")
	if strings.Contains(page, "account|1<") || !strings.Contains(page, "account|2<") {
		t.Errorf("the tail is %s, want the accounts 2 and 3", text(page))
	}
	page, _ = web.page("/tail?id=" + url.QueryEscape("account|2"))
	if strings.Contains(page, "data-id=\"account|3\"") || !strings.Contains(page, "data-id=\"account|2\"") {
		t.Errorf("the tail of account 2 is %s", text(page))
	}
	for filter, found := range map[string]bool{"tag=money": true, "tag=fees": false, "type=account": true, "type=cart": false} {
		if page, _ = web.page("/tail?" + filter); strings.Contains(page, "data-id=\"account|3\"") != found {
			t.Errorf("the tail with %s contains account 3: %v, want %v", filter, !found, found)
		}
	}
	again := b.browse() // another console, as after a restart
	page, _ = again.page(strings.ReplaceAll(resume[1], "&amp;", "&"))
	if strings.Count(page, "data-id=\"account|2\"") != 1 || strings.Count(page, "data-id=\"account|3\"") != 1 || strings.Contains(page, "data-id=\"account|1\"") {
		t.Errorf("the resumed tail is %s, want the accounts 2 and 3 once", text(page))
	}
	page, _ = web.page("/tail")
	later := regexp.MustCompile(`id="resume-link" href="([^"]+)"`).FindStringSubmatch(page)
	b.deposit("4", 40)
	b.deposit("5", 50)
	_ = web.await("/tail", "account|5") // the console has these events in memory
	page, _ = web.page(strings.ReplaceAll(later[1], "&amp;", "&"))
	if ids := regexp.MustCompile(`data-id="[^"]+"`).FindAllString(page, -1); !slices.Equal(ids, []string{`data-id="account|5"`, `data-id="account|4"`}) {
		t.Errorf("the tail after the accounts 2 and 3 has the events %v, want those of the accounts 5 and 4", ids)
	}
}
