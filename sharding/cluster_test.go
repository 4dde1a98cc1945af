// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A diary keeps what is written into it, in order.
type (
	diaryCommand interface {
		eventsourcing.Target[diaryCommand]
	}
	diaryCtx    = eventsourcing.Context[diaryCommand, wrote]
	diaryEffect = eventsourcing.Effect[diaryCommand, wrote]

	// write is answered with where the diary is.
	write struct {
		eventsourcing.For[diaryCommand, page]
		By string
		N  int
	}
	// read is answered with all that By has written.
	read struct {
		eventsourcing.For[diaryCommand, []int]
		By string
	}
	// tear is refused.
	tear struct {
		eventsourcing.For[diaryCommand, page]
	}
	// ponder is answered later.
	ponder struct {
		eventsourcing.For[diaryCommand, page]
		Stay bool // not at all
	}
	// remind writes later.
	remind struct {
		eventsourcing.For[diaryCommand, page]
		After time.Duration
	}
	// perish ends the diary.
	perish struct {
		eventsourcing.For[diaryCommand, page]
	}
	// closeIt lets the diary leave memory.
	closeIt struct {
		eventsourcing.For[diaryCommand, page]
	}
	pondered struct {
		eventsourcing.For[diaryCommand, page]
	}
	// secret has no name.
	secret struct {
		eventsourcing.For[diaryCommand, page]
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
		token eventsourcing.Token[diaryCommand]
	}
)

var errTear = eventsourcing.NewRefusal("diary/tear", "pages stay")

func (d *diary) page() page { return page{d.node, len(d.pages)} }

func (d *diary) HandleCommand(ctx *diaryCtx, cmd diaryCommand) diaryEffect {
	switch c := cmd.(type) {
	case write:
		return ctx.Persist(wrote{c.By, c.N}).Reply(c.Answer(d.page))
	case read:
		var all []int
		for _, p := range d.pages {
			if p.By == c.By {
				all = append(all, p.N)
			}
		}
		return ctx.Reply(c.With(all))
	case tear:
		return ctx.Refuse(errTear)
	case remind:
		ctx.StartTimer("remind", c.After, write{By: "timer"})
		return ctx.Reply(c.With(d.page()))
	case perish:
		return ctx.Stop().Reply(c.With(d.page()))
	case closeIt:
		return ctx.Passivate().Reply(c.With(d.page()))
	case ponder:
		if !c.Stay {
			d.token = ctx.Token()
			ctx.Go(func(ctx context.Context) diaryCommand {
				time.Sleep(time.Second)
				return pondered{}
			})
		}
		return ctx.None().ReplyLater()
	case pondered:
		return ctx.None().Resolve(d.token, c.With(d.page()))
	}
	return ctx.Unhandled()
}

func (d *diary) ApplyEvent(e wrote) { d.pages = append(d.pages, e) }

func diaries(node string) eventsourcing.Type[diaryCommand, wrote] {
	return eventsourcing.Type[diaryCommand, wrote]{
		Name:   "diary",
		New:    func(string) eventsourcing.Aggregate[diaryCommand, wrote] { return &diary{node: node} },
		Events: codec.Types(codec.Name[wrote]("wrote")),
		Commands: codec.Types(
			codec.Name[write]("write"), codec.Name[read]("read"), codec.Name[tear]("tear"), codec.Name[ponder]("ponder"),
			codec.Name[closeIt]("close"), codec.Name[perish]("perish"), codec.Name[remind]("remind"), codec.Name[pondered]("pondered"),
		),
	}
}

// world is a network with nodes that host diaries, in a bubble with a clock of its own.
type world struct {
	*testing.T

	network    *inmem.Network
	journal    *inmem.Journal
	replicated bool // the coordinator's state
	remembers  bool // which entities run
	disk       inmem.Durable
	options    sharding.Options
	made       func(id string) // is called when a diary is made
	hung       chan struct{}   // closed when writes of node a go on, if not nil
	log        *journalled
	nodes      map[string]*host
	order      []*host
}

// host is a node.
type host struct {
	*cluster.Node

	rt     *eventsourcing.Runtime
	region *sharding.Region[diaryCommand]
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
		Cluster: "library", Carrier: w.network.Carrier(self), Seeds: []string{"a", "b", "c"}, Roles: roles,
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

// opts are those of a node.
func (w *world) opts(h *host) sharding.Options {
	w.Helper()
	o := w.options
	o.Runtime = h.rt
	o.State = sharding.JournalState(w.journal, nil)
	if w.replicated {
		var cfg ddata.Config
		if w.remembers {
			cfg = ddata.Config{Durable: []string{"shard-*"}, Opener: &w.disk}
		}
		r, err := ddata.Start(w.Context(), h.Node, cfg)
		w.must(err)
		o.State = sharding.ReplicatedState(r)
		if w.remembers {
			o.Remember = sharding.ReplicatedEntities(r)
		}
	} else if w.remembers {
		o.Remember = sharding.JournalEntities(w.journal, nil)
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
		typ.New = func(id string) eventsourcing.Aggregate[diaryCommand, wrote] {
			made(id)
			return &diary{node: name}
		}
	}
	var err error
	h.region, err = sharding.Start(w.Context(), h.Node, typ, w.opts(h))
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

// up waits until some nodes know that they are the members, and all are Up and reachable.
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

// ask asks with a deadline of some time.
func ask[R any](w *world, h *host, id string, command eventsourcing.Query[diaryCommand, R]) (R, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	return eventsourcing.Ask(ctx, h.region.Ref(id), command)
}

// spread writes into diaries from all nodes, in turn, and returns how many each node has.
func (w *world) spread(hosts []*host, diaries, n int) map[string]int {
	w.Helper()
	where := map[string]int{}
	for d := range diaries {
		for _, h := range hosts {
			p, err := ask(w, h, "d"+strconv.Itoa(d), write{By: h.Self().Name, N: n})
			if err != nil {
				w.Fatalf("%v writes into d%d: %v", h.Self(), d, err)
			}
			where[p.Node]++
		}
	}
	return where
}

// wrote checks that writers have all that they have written, in order.
func (w *world) wrote(h *host, id, by string, n int) {
	w.Helper()
	got, err := ask(w, h, id, read{By: by})
	want := make([]int, n)
	for i := range want {
		want[i] = i
	}
	if err != nil || !slices.Equal(got, want) {
		w.Errorf("in %s, %s has %v, not %d in order: %v", id, by, got, n, err)
	}
}

// sleep lets time pass.
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
		w.Errorf("%v, not %v, or it is not so that done is %t", err, sentinel, done)
	}
}

// journalled is a log that is read afterwards.
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

// pause lets a writer rest, beside others.
func pause() { time.Sleep(50 * time.Millisecond) }
