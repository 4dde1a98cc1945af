// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// A diary stores its pages in order.
type (
	diaryCtx[R any]      = eventsourcing.Context[diary, wrote, R]
	diaryDecision[R any] = eventsourcing.Decision[diary, wrote, R]
	diaryEffect          = eventsourcing.Effect[diary, wrote, eventsourcing.None]

	// write adds a page. The reply has the node of the diary.
	write struct {
		eventsourcing.Command[diary, page]
		By string
		N  int
	}
	// read returns all pages of By.
	read struct {
		eventsourcing.Command[diary, []int]
		By string
	}
	// tear is refused.
	tear struct {
		eventsourcing.Command[diary, page]
		How int // the refusal, see refusals
	}
	// ponder is answered after one second.
	ponder struct {
		eventsourcing.Command[diary, page]
		Stay bool // never answered
	}
	// remind sets a timer that writes a page.
	remind struct {
		eventsourcing.Command[diary, page]
		After time.Duration
	}
	// perish stops the diary.
	perish struct {
		eventsourcing.Command[diary, page]
	}
	// fail makes the handler panic.
	fail struct {
		eventsourcing.Command[diary, page]
	}
	// closeIt lets the diary leave memory.
	closeIt struct {
		eventsourcing.Command[diary, page]
	}
	pondered struct {
		eventsourcing.Notice[diary]
	}
	// secret has no name in the registry, so it cannot be encoded.
	secret struct {
		eventsourcing.Command[diary, page]
	}
	wrote struct {
		By string
		N  int
	}
	page struct {
		Node  string
		Count int
	}
	diary struct {
		node  string
		pages []wrote
		token eventsourcing.Token[page]
	}
)

var errTear = eventsourcing.NewRefusal("diary/tear", "pages stay")

func (d *diary) page() page { return page{d.node, len(d.pages)} }

func (d *diary) write(ctx *diaryCtx[page], c write) diaryDecision[page] {
	return ctx.Persist(wrote{c.By, c.N}).ReplyFunc(d.page)
}

func (d *diary) read(ctx *diaryCtx[[]int], c read) diaryDecision[[]int] {
	var all []int
	for _, p := range d.pages {
		if p.By == c.By {
			all = append(all, p.N)
		}
	}
	return ctx.Reply(all)
}

func (d *diary) tear(ctx *diaryCtx[page], c tear) diaryDecision[page] {
	return ctx.Refuse(refusals()[c.How])
}

// brokenError is an error whose methods panic if it has no cause.
type brokenError struct{ cause error }

func (e brokenError) Error() string { return e.cause.Error() }

func (e brokenError) Unwrap() error { return e.cause }

func (e brokenError) Is(error) bool { return len(e.cause.Error()) == 0 }

// selfError is an error whose method panics with the error itself.
type selfError struct{}

func (e selfError) Error() string { panic(e) }

func refusals() []error {
	return []error{errTear, selfError{}, (*fs.PathError)(nil), brokenError{}, fmt.Errorf("wrapped: %w", brokenError{}), fmt.Errorf("wrapped: %w", (*fs.PathError)(nil))}
}

func (d *diary) remind(ctx *diaryCtx[page], c remind) diaryDecision[page] {
	return ctx.StartTimer("remind", c.After, write{By: "timer"}).Reply(d.page())
}

func (d *diary) fail(*diaryCtx[page], fail) diaryDecision[page] { panic("injected") }

func (d *diary) perish(ctx *diaryCtx[page], _ perish) diaryDecision[page] {
	return ctx.Stop().Reply(d.page())
}

func (d *diary) closeIt(ctx *diaryCtx[page], _ closeIt) diaryDecision[page] {
	return ctx.Passivate().Reply(d.page())
}

func (d *diary) ponder(ctx *diaryCtx[page], c ponder) diaryDecision[page] {
	if c.Stay {
		return ctx.ReplyLater()
	}
	d.token = ctx.Token()
	return ctx.Go(func(context.Context) eventsourcing.Message[diary] {
		time.Sleep(time.Second)
		return pondered{}
	}).ReplyLater()
}

func (d *diary) pondered(ctx *diaryCtx[eventsourcing.None], _ pondered) eventsourcing.Effect[diary, wrote, eventsourcing.None] {
	return ctx.Resolve(d.token.With(d.page()))
}

func (d *diary) apply(e wrote) { d.pages = append(d.pages, e) }

func diaries(node string) eventsourcing.Type[diary, wrote] {
	return eventsourcing.Type[diary, wrote]{
		Name:   "diary",
		New:    func(string) *diary { return &diary{node: node} },
		Apply:  (*diary).apply,
		Events: codec.Types(codec.Name[wrote]("wrote")),
		Commands: eventsourcing.Commands(
			eventsourcing.On("write", (*diary).write), eventsourcing.On("read", (*diary).read), eventsourcing.On("tear", (*diary).tear),
			eventsourcing.On("ponder", (*diary).ponder), eventsourcing.On("close", (*diary).closeIt), eventsourcing.On("perish", (*diary).perish), eventsourcing.On("fail", (*diary).fail),
			eventsourcing.On("remind", (*diary).remind), eventsourcing.OnNotice("pondered", (*diary).pondered),
		),
	}
}

// world is a network with nodes that host diaries, in a bubble with its own clock.
type world struct {
	*testing.T

	network    *inmem.Network
	journal    *inmem.Journal
	replicated bool // the coordinator's state is in replicated data
	remembers  bool // entities are remembered
	disk       inmem.Durable
	options    sharding.Options
	limits     transport.Config
	settings   cluster.Settings
	leases     lease.Store
	made       func(id string) // is called when a diary is made
	stopping   func(*diary, *diaryCtx[eventsourcing.None], eventsourcing.Stopping) diaryEffect
	hung       chan struct{} // if not nil, writes of node a hang until it is closed
	log        *journalled
	nodes      map[string]*host
	order      []*host
}

// host is a node.
type host struct {
	*cluster.Node

	rt     *eventsourcing.Runtime
	region *sharding.Region[diary]
}

// in runs a test in a bubble. All nodes are stopped at its end.
func in(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, network: inmem.NewNetwork(inmem.NetworkConfig{}), journal: inmem.NewJournal(), log: &journalled{}, nodes: map[string]*host{}}
		defer w.end()
		f(w)
	})
}

// halt stops all nodes.
func (w *world) halt() {
	for _, h := range w.order {
		h.Stop()
	}
	for _, h := range w.order {
		<-h.Done()
		if err := h.rt.Close(context.Background()); err != nil {
			w.Error(err)
		}
	}
	for _, h := range w.order { // each command that waited was delivered, sent or refused
		budget := loop.BudgetOf(h.Transport())
		for _, name := range append(slices.Collect(maps.Keys(w.nodes)), "", "frames of diary", "proxy of singleton", "packets of default") {
			if held := budget.Account(name).Held(); held != 0 {
				w.Errorf("the account %q of %v holds %d bytes at the end", name, h.Self(), held)
			}
		}
	}
	w.order = nil
}

func (w *world) end() {
	w.halt()
	if w.Failed() {
		w.Log(w.log.String())
	}
}

// join starts a node, without a region.
func (w *world) join(name string, roles ...string) *host {
	w.Helper()
	self, err := identity.New(name)
	if err != nil {
		w.Fatal(err)
	}
	n, err := cluster.Start(cluster.Config{
		Cluster: "library", Carrier: w.network.Carrier(self), Seeds: []string{"a", "b", "c"}, Roles: roles, Transport: w.limits, Settings: w.settings, Leases: w.leases,
		Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo})).With(slog.String("at", name)),
	})
	w.must(err)
	var j journal.Journal = w.journal
	if w.hung != nil && name == "a" {
		j = &hanging{w.journal, w.hung}
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, nil)})
	w.must(err)
	h := &host{Node: n, rt: rt}
	w.nodes[name] = h
	w.order = append(w.order, h)
	return h
}

// opts returns the options of a node.
func (w *world) opts(h *host) sharding.Options {
	w.Helper()
	o := w.options
	o.State = sharding.JournalStores{Journal: w.journal}
	if w.replicated {
		var cfg ddata.Config
		if w.remembers {
			cfg = ddata.Config{Durable: []string{"shard-*"}, Opener: &w.disk}
		}
		r, err := ddata.Start(w.Context(), h.Node, cfg)
		w.must(err)
		o.State = sharding.ReplicatedStores{Replicator: r}
		if w.remembers {
			o.Remember = sharding.ReplicatedStores{Replicator: r}
		}
	} else if w.remembers {
		o.Remember = sharding.JournalStores{Journal: w.journal}
	}
	return o
}

// replicator starts the replicator of a node.
func (w *world) replicator(name string) *ddata.Replicator {
	w.Helper()
	r, err := ddata.Start(w.Context(), w.nodes[name].Node, ddata.Config{})
	w.must(err)
	return r
}

// start starts a node with a region.
func (w *world) start(name string, roles ...string) *host {
	w.Helper()
	h := w.join(name, roles...)
	typ := diaries(name)
	if made := w.made; made != nil {
		typ.New = func(id string) *diary {
			made(id)
			return &diary{node: name}
		}
	}
	if w.stopping != nil {
		typ.Signals = eventsourcing.Signals(eventsourcing.OnSignal(w.stopping))
	}
	var err error
	h.region, err = sharding.Host(w.Context(), h.Node, h.rt, typ, w.opts(h))
	w.must(err)
	return h
}

// cluster starts nodes with regions and waits until all are ready.
func (w *world) cluster(names ...string) []*host {
	w.Helper()
	all := make([]*host, len(names))
	for i, name := range names {
		all[i] = w.start(name)
		w.up(all[:i+1]...)
	}
	for _, h := range all {
		w.must(h.region.AwaitReady(w.Context()))
	}
	return all
}

// up waits until the given nodes are the members, Up and reachable, as each of them sees it.
func (w *world) up(hosts ...*host) {
	w.Helper()
	for _, h := range hosts {
		ok := func() bool {
			s := h.State()
			return len(s.Members) == len(hosts) && len(s.Unreachable) == 0 &&
				!slices.ContainsFunc(s.Members, func(m cluster.Member) bool { return m.Status != cluster.Up })
		}
		for range h.Events(w.Context()) {
			if ok() {
				break
			}
		}
	}
}

// ask sends a command with a timeout of one minute.
func ask[R any](w *world, h *host, id string, command eventsourcing.Request[diary, R]) (R, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	return eventsourcing.Ask(ctx, h.region.Ref(id), command)
}

// spread writes into diaries from all nodes, in turn, and returns the number of replies by node.
func (w *world) spread(hosts []*host, diaries, n int) map[string]int {
	w.Helper()
	where := map[string]int{}
	for d := range diaries {
		for _, h := range hosts {
			p, err := ask(w, h, "d"+strconv.Itoa(d), write{By: h.Self().Name, N: n})
			if err != nil {
				w.Fatalf("%v: write to d%d: %v", h.Self(), d, err)
			}
			where[p.Node]++
		}
	}
	return where
}

// wrote checks that a diary has all pages of a writer, in order.
func (w *world) wrote(h *host, id, by string, n int) {
	w.Helper()
	got, err := ask(w, h, id, read{By: by})
	want := make([]int, n)
	for i := range want {
		want[i] = i
	}
	if err != nil || !slices.Equal(got, want) {
		w.Errorf("%s has the pages of %s: %v, want %d in order: %v", id, by, got, n, err)
	}
}

// sleep advances the clock of the bubble.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) wantErr(err, sentinel error, done bool) {
	w.Helper()
	if !errors.Is(err, sentinel) || eventsourcing.NotDone(err) == done {
		w.Errorf("error %v, want %v and done = %t", err, sentinel, done)
	}
}

// journalled is a log that the test reads later.
type journalled struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *journalled) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *journalled) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// pause delays a writer.
func pause() { time.Sleep(50 * time.Millisecond) }
