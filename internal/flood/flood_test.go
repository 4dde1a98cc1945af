// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package flood tests the memory budget of a node. It is a package of its own, because the test
// measures the heap of its process.
package flood_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

const (
	budget = 64 << 20
	mib    = 1 << 20
	// kindBlocked is the kind of messages whose handler blocks.
	kindBlocked = transport.FirstUserKind
)

type (
	// add adds an amount to a till and returns the sum.
	add struct {
		eventsourcing.Command[till, int]
		Amount int
		Note   []byte
	}
	added struct{ Amount int }
	till  struct {
		Sum   int
		block <-chan struct{} // if not nil, handlers wait until it is closed
	}
)

func (t *till) add(ctx *eventsourcing.Context[till, added, int], c add) eventsourcing.Decision[till, added, int] {
	if t.block != nil {
		<-t.block
	}
	return ctx.Persist(added{c.Amount}).ReplyFunc(func() int { return t.Sum })
}

func (t *till) apply(e added) { t.Sum += e.Amount }

func tills(name string, block <-chan struct{}) eventsourcing.Type[till, added] {
	return eventsourcing.Type[till, added]{
		Name: name, New: func(string) *till { return &till{block: block} }, Apply: (*till).apply,
		Commands: eventsourcing.Commands(eventsourcing.On("add", (*till).add)), Events: codec.Types(codec.Name[added]("added")),
	}
}

// site is a healthy node.
type site struct {
	*cluster.Node

	rt    *eventsourcing.Runtime
	tills *sharding.Region[till]
	data  *ddata.Replicator
	proxy *cluster.Proxy
}

// world is a cluster of two healthy nodes, a and b, and of hostile members. All floods go to a.
type world struct {
	*testing.T

	network *inmem.Network
	journal *inmem.Journal
	a, b    *site
	sums    map[string]int
	hits    int
	epoch   uint64 // increases with each forged frame
	heap    uint64 // before the floods
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// start starts a node, which joins in the background.
func (w *world) start(name string, roles ...string) *cluster.Node {
	w.Helper()
	self, err := identity.New(name)
	w.must(err)
	n, err := cluster.Start(cluster.Config{
		Cluster: "flood", Carrier: w.network.Carrier(self), Seeds: []string{"a"}, Roles: roles,
		Transport: transport.Config{MemoryBudget: budget},
		Downing:   downing.Settings{Strategy: downing.Off}, Settings: cluster.Settings{AcceptablePause: 15 * time.Second},
	})
	w.must(err)
	w.Cleanup(func() { n.Stop(); <-n.Done() })
	return n
}

func (w *world) site(name string, roles ...string) *site {
	w.Helper()
	s := &site{Node: w.start(name, roles...), rt: w.runtime()}
	w.must(s.AwaitUp(w.Context()))
	w.must(s.Singleton(w.Context(), cluster.Singleton{Name: "echo", Role: "site", Run: func(ctx context.Context, in *cluster.Inbox) error {
		for d := range in.All(ctx) {
			_ = d.Reply(d.Payload)
		}
		return nil
	}}))
	var err error
	s.proxy, err = s.Proxy(w.Context(), cluster.ProxyConfig{Singleton: "echo", Role: "site"})
	w.must(err)
	s.data, err = ddata.Start(w.Context(), s.Node, ddata.Config{Roles: []string{"site"}})
	w.must(err)
	s.tills, err = sharding.Host(w.Context(), s.Node, s.rt, tills("till", nil), sharding.Options{Role: "site"})
	w.must(err)
	w.must(s.tills.AwaitReady(w.Context()))
	return s
}

func (w *world) runtime() *eventsourcing.Runtime {
	w.Helper()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(w.journal, nil)})
	w.must(err)
	w.Cleanup(func() { w.must(rt.Close(context.WithoutCancel(w.Context()))) })
	return rt
}

// serve checks that the healthy nodes serve entities, data and a singleton.
func (w *world) serve(phase string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	for _, s := range []*site{w.a, w.b} {
		for id := range 20 {
			name := fmt.Sprint("till-", id)
			w.sums[name]++
			if sum, err := eventsourcing.Ask(ctx, s.tills.Ref(name), add{Amount: 1}); err != nil || sum != w.sums[name] {
				w.Fatalf("%s: the sum of %s at %v is %d, %v; want %d", phase, name, s.Self(), sum, err, w.sums[name])
			}
		}
		w.hits++
		if _, err := ddata.Update(ctx, s.data, ddata.Key[crdt.GCounter]("hits"), ddata.WriteMajority(), func(c crdt.GCounter) (crdt.GCounter, error) {
			return c.Add(s.data.Self(), 1), nil
		}); err != nil {
			w.Fatalf("%s: update at %v: %v", phase, s.Self(), err)
		}
		if hits, err := ddata.Get(ctx, s.data, ddata.Key[crdt.GCounter]("hits"), ddata.ReadMajority()); err != nil || hits.Value() != uint64(w.hits) {
			w.Fatalf("%s: the counter at %v is %v, %v; want %d", phase, s.Self(), hits.Value(), err, w.hits)
		}
		if got, err := s.proxy.Ask(ctx, []byte("?")); string(got) != "?" || err != nil {
			w.Fatalf("%s: the singleton answers %q, %v", phase, got, err)
		}
	}
}

// held returns how many bytes the heap has grown.
func (w *world) held() int {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) - int(w.heap)
}

// check compares the heap and the counted bytes with the budget.
func (w *world) check(phase string) {
	w.Helper()
	w.serve(phase)
	held, counted := w.held(), w.a.Transport().Stats().Memory
	if held > 2*budget || counted > budget {
		w.Errorf("%s: the heap has grown by %.1f MiB, and %.1f MiB are counted; want at most %d and %d", phase, float64(held)/mib, float64(counted)/mib, 2*budget/mib, budget/mib)
	}
	w.Logf("%s: the heap has grown by %.1f MiB, %.1f MiB are counted", phase, float64(held)/mib, float64(counted)/mib)
}

// hostile is a member that forges frames without regard to its credit.
type hostile struct {
	*world

	member  *cluster.Node
	carrier transport.Carrier
}

func (w *world) hostile(name string) *hostile {
	w.Helper()
	n := w.start(name)
	return &hostile{world: w, member: n, carrier: w.network.Carrier(n.Self())}
}

// incarnations returns the member and further incarnations of its name.
func (h *hostile) incarnations() []identity.Node {
	all := []identity.Node{h.member.Self()}
	for i := range uint64(7) {
		all = append(all, identity.Node{Name: h.member.Self().Name, UID: i + 1})
	}
	return all
}

// send sends a frame to a, on a new link, and waits until a has received it.
func (h *hostile) send(from identity.Node, lane transport.Lane, body []byte) {
	h.Helper()
	to := h.a.Self()
	h.epoch++
	received := func() uint64 { return h.a.Transport().Stats().Lanes[lane].FramesIn }
	before := received()
	h.must(h.carrier.Send(lane, to, link.AppendFrame(nil, link.Frame{
		Lane: link.Lane(lane), From: from, To: to.UID, Sequenced: true, Epoch: h.epoch << 20, Number: 1, Body: body,
	})))
	for received() == before {
		runtime.Gosched()
	}
}

// flood sends messages until they have a number of bytes.
func (h *hostile) flood(lane transport.Lane, kind transport.Kind, typ link.Type, payload func(i int) []byte) {
	h.Helper()
	total := effort.Count(2, 3, 20) * budget
	for i, sent := 0, 0; sent < total; i++ {
		data := payload(i)
		sent += len(data) + 256
		correlation := uint64(0)
		if typ == link.Request {
			correlation = uint64(i) + 1
		}
		h.send(h.member.Self(), lane, message(nil, typ, kind, correlation, data))
	}
}

// message appends an encoded message to the body of a frame.
func message(dst []byte, typ link.Type, kind transport.Kind, correlation uint64, payload []byte) []byte {
	dst = append(dst, byte(typ))
	for _, n := range []uint64{uint64(kind), correlation, uint64(len(payload))} {
		dst = binary.AppendUvarint(dst, n)
	}
	return append(dst, payload...)
}

// part appends the first part of a message of which rest bytes never arrive.
func part(dst []byte, payload []byte, rest int) []byte {
	dst = append(dst, byte(link.Tell)|1<<6)
	for _, n := range []uint64{uint64(kindBlocked), 0, uint64(rest), uint64(len(payload))} {
		dst = binary.AppendUvarint(dst, n)
	}
	return append(dst, payload...)
}

// command returns a command for an entity of a type, as another node forwards it.
func (w *world) command(typ, id string, shards func(string) (sharding.Shard, error), note []byte) []byte {
	w.Helper()
	manifest, payload, err := tills(typ, nil).Protocol().Commands.Encode(add{Amount: 1, Note: note})
	w.must(err)
	shard, err := shards(id)
	w.must(err)
	body := []byte{0x10, 0}
	for _, text := range []string{manifest, string(payload)} {
		body = append(binary.AppendUvarint(body, uint64(len(text))), text...)
	}
	return region.AppendPacket(nil, region.Packet{Type: typ, Frame: region.Frame{Kind: region.Forward, Shard: shard}, Entity: id, Body: body})
}

// TestMemoryBudget floods a node with messages of every kind that it keeps. The heap stays within
// twice the budget, and healthy nodes are served. After the end of the floods no bytes are counted.
func TestMemoryBudget(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	w := &world{T: t, network: inmem.NewNetwork(inmem.NetworkConfig{}), journal: inmem.NewJournal(), sums: map[string]int{}}
	w.a = w.site("a", "site", "stuck")
	w.b = w.site("b", "site", "late")
	blocked := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a := w.a
	// The entities of the type stuck block. No node hosts the type late at first.
	stuck, err := sharding.Host(ctx, a.Node, w.runtime(), tills("stuck", blocked), sharding.Options{Role: "stuck"})
	w.must(err)
	late, err := sharding.Proxy(ctx, a.Node, a.rt, tills("late", nil).Protocol(), sharding.Options{Role: "late"})
	w.must(err)
	w.must(stuck.AwaitReady(ctx))
	inbox := make(chan *cluster.Inbox, 1)
	w.must(a.Singleton(ctx, cluster.Singleton{Name: "deaf", Role: "stuck", Run: func(ctx context.Context, in *cluster.Inbox) error {
		inbox <- in
		<-ctx.Done()
		return nil
	}}))
	nobody, err := a.Proxy(ctx, cluster.ProxyConfig{Singleton: "missing", Role: "none", BufferSize: 10_000})
	w.must(err)
	a.Transport().Handle(kindBlocked, func(ctx context.Context, _ transport.Message) {
		select {
		case <-blocked:
		case <-ctx.Done():
		}
	})
	var members []*hostile // one for each kind of flood, because each of them has a share
	for i := range 8 {
		members = append(members, w.hostile(fmt.Sprint("x", i)))
	}
	for _, h := range members {
		w.must(h.member.AwaitUp(ctx))
	}
	deaf := <-inbox
	w.serve("before")
	w.heap = uint64(w.held())

	one, large := []byte{1}, make([]byte, 900<<10)
	padding := message(nil, 15, kindBlocked, 0, large) // a type that does not exist
	for _, lane := range []transport.Lane{transport.Data, transport.Bulk} {
		for range 400 {
			members[0].send(members[0].member.Self(), lane, append(message(nil, link.Tell, kindBlocked, 0, one), padding...))
		}
	}
	w.check("small parts of large frames")
	tiny := []byte(nil)
	for range 5000 {
		tiny = message(tiny, link.Tell, kindBlocked, 0, one)
	}
	for _, from := range members[1].incarnations() {
		for range 50 {
			members[1].send(from, transport.Bulk, tiny)
		}
	}
	w.check("small messages")
	parts := func(body []byte) {
		for _, from := range members[2].incarnations()[1:] {
			for _, lane := range []transport.Lane{transport.Control, transport.Data, transport.Bulk} {
				members[2].send(from, lane, body)
			}
		}
	}
	parts(part(nil, large[:600<<10], 400<<10))
	w.check("incomplete messages")
	if a.Transport().Stats().Dropped[link.Overload]+a.Transport().Stats().Dropped[link.OverCredit] == 0 {
		t.Error("no frame was dropped")
	}

	members[3].flood(transport.Data, transport.Kind(shardcore.KindRegion), link.Tell, func(i int) []byte {
		return w.command("stuck", fmt.Sprint("s", i%10), stuck.ShardOf, large)
	})
	w.check("commands for entities that block")
	members[4].flood(transport.Data, transport.Kind(shardcore.KindRegion), link.Tell, func(i int) []byte {
		return w.command("late", fmt.Sprint("l", i), late.ShardOf, large)
	})
	w.check("commands for shards without a home")
	members[5].flood(transport.Data, transport.Kind(shardcore.KindRegion), link.Tell, func(i int) []byte {
		return w.command("unknown", fmt.Sprint("u", i), late.ShardOf, large)
	})
	w.check("commands for an unknown type")
	for i, refused := 0, false; !refused; i++ {
		err = eventsourcing.Tell(ctx, late.Ref(fmt.Sprint("own", i)), add{Amount: 1, Note: make([]byte, mib)})
		if refused = err != nil || i*mib > budget; refused && !errors.Is(err, sharding.ErrBuffersFull) {
			t.Errorf("a command of the node beyond the budget: %v, want ErrBuffersFull", err)
		}
	}
	w.check("commands of the node itself")
	for name, of := range map[string]*sharding.Region[till]{"stuck": stuck, "late": late} {
		if s, failed := of.State(ctx); failed != nil || s.OverBudget == 0 {
			t.Errorf("type %s: %d commands were counted as refused, %v; want some", name, s.OverBudget, failed)
		}
	}

	packet := append([]byte{1, byte(len(ddata.DefaultName))}, ddata.DefaultName...)
	members[6].flood(transport.Bulk, transport.FirstReplicationKind, link.Tell, func(i int) []byte {
		encoded := replication.AppendMessage(nil, replication.Part{Nr: uint64(i / 10), Index: uint64(i % 10), Count: math.MaxInt32, Data: large})
		return append(binary.AppendUvarint(slices.Clip(packet), uint64(len(encoded))), encoded...)
	})
	w.check("packets of replicated data")
	forwarded := append([]byte{1, 4}, "deaf"...)
	for _, typ := range []link.Type{link.Tell, link.Request} {
		members[7].flood(transport.Bulk, transport.Kind(node.KindForwarded), typ, func(int) []byte { return append(slices.Clip(forwarded), large...) })
	}
	w.check("messages for a singleton that receives none")
	for i, refused := 0, false; !refused; i++ {
		err = nobody.Send(ctx, make([]byte, 900<<10))
		if refused = err != nil || i*mib > budget; refused && !errors.Is(err, cluster.ErrBusy) {
			t.Errorf("a message for a missing singleton beyond the budget: %v, want ErrBusy", err)
		}
	}
	w.check("messages for a singleton without an instance")

	// The end of the floods releases all bytes.
	close(blocked)
	parts(nil)
	w.must(nobody.Close(ctx))
	received, done := context.WithCancel(ctx)
	go func() {
		for d := range deaf.All(received) {
			_ = d.Refuse("deaf")
		}
	}()
	defer done()
	host, err := sharding.Host(ctx, w.b.Node, w.b.rt, tills("late", nil), sharding.Options{Role: "late"})
	w.must(err)
	w.must(host.AwaitReady(ctx))
	for a.Transport().Stats().Memory > 0 {
		if ctx.Err() != nil {
			t.Fatalf("%d bytes are counted after the floods", a.Transport().Stats().Memory)
		}
		runtime.Gosched()
	}
	w.check("after the floods")
}
