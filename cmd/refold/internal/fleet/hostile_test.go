// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

type (
	// add adds an amount to a till and returns the sum.
	add struct {
		eventsourcing.Command[till, int]
		Amount int
	}
	added struct{ Amount int }
	till  struct{ Sum int }
)

func (t *till) add(ctx *eventsourcing.Context[till, added, int], c add) eventsourcing.Decision[till, added, int] {
	return ctx.Persist(added{c.Amount}).ReplyFunc(func() int { return t.Sum })
}

func (t *till) apply(e added) { t.Sum += e.Amount }

// site is a healthy node with entities, replicated data and a singleton.
type site struct {
	*cluster.Node

	tills *sharding.Region[till]
	data  *ddata.Replicator
	proxy *cluster.Proxy
}

// hostileWorld is a cluster of healthy nodes, and the credentials of the node x and of two operators:
// reader has the right to read, ops has the right to act.
type hostileWorld struct {
	*testing.T

	server  *natstest.Server
	sites   []*site
	sums    map[string]int
	counter int
	// epoch increases with each forged frame, so that no frame is dropped as a repetition.
	epoch    uint64
	attempts uint64
}

func newHostileWorld(t *testing.T) *hostileWorld {
	t.Helper()
	users := nodes(t, []string{"a", "b", "x"})
	for name, right := range map[string]transport.AdminRight{"reader": transport.AdminRead, "ops": transport.AdminAct} {
		p, err := nats.OperatorPermissions(clusterName, name, right)
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, natstest.User{Name: name, Permissions: p})
	}
	w := &hostileWorld{T: t, server: natstest.Start(t, natstest.Config{Users: users}), sums: map[string]int{}}
	journal := inmem.NewJournal()
	for _, name := range []string{"a", "b"} {
		s := &site{Node: joinPlain(t, w.server.Access(t, name), name)}
		w.sites = append(w.sites, s)
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
		w.must(err)
		t.Cleanup(func() { w.must(rt.Close(context.WithoutCancel(t.Context()))) })
		w.must(s.Singleton(t.Context(), cluster.Singleton{Name: "echo", Run: echo}))
		s.data, err = ddata.Start(t.Context(), s.Node, ddata.Config{})
		w.must(err)
		s.tills, err = sharding.Host(t.Context(), s.Node, rt, eventsourcing.Type[till, added]{
			Name: "till", Commands: eventsourcing.Commands(eventsourcing.On("add", (*till).add)), Apply: (*till).apply,
			Events: codec.Types(codec.Name[added]("added")),
		}, sharding.Options{})
		w.must(err)
		w.must(s.tills.AwaitReady(t.Context()))
		s.proxy, err = s.Proxy(t.Context(), cluster.ProxyConfig{Singleton: "echo"})
		w.must(err)
	}
	return w
}

// joinPlain starts a node in this process.
func joinPlain(t *testing.T, access nats.Access, name string) *cluster.Node {
	t.Helper()
	self, err := identity.New(name)
	if err != nil {
		t.Fatal(err)
	}
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: clusterName, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	n, err := cluster.Join(t.Context(), cluster.Config{Cluster: clusterName, Carrier: carrier, Seeds: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Stop(); <-n.Done() })
	if err := n.AwaitUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// echo answers each request with its payload.
func echo(ctx context.Context, in *cluster.Inbox) error {
	for {
		d, err := in.Receive(ctx)
		if err != nil {
			return nil //nolint:nilerr // the instance was asked to stop
		}
		_ = d.Reply(d.Payload)
	}
}

func (w *hostileWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// serve checks that the healthy nodes are members and serve entities, data and the singleton, and
// that no forged command had an effect.
func (w *hostileWorld) serve(phase string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	for i, s := range w.sites {
		for id := range 20 {
			name := fmt.Sprint("till-", id)
			w.sums[name]++
			if sum, err := eventsourcing.Ask(ctx, s.tills.Ref(name), add{Amount: 1}); err != nil || sum != w.sums[name] {
				w.Fatalf("%s: the sum of %s at %v is %d, %v; want %d", phase, name, s.Self(), sum, err, w.sums[name])
			}
		}
		w.counter++
		if _, err := ddata.Update(ctx, s.data, ddata.Key[crdt.GCounter]("hits"), ddata.WriteMajority(), func(c crdt.GCounter) (crdt.GCounter, error) {
			return c.Add(s.data.Self(), 1), nil
		}); err != nil {
			w.Fatalf("%s: update at %v: %v", phase, s.Self(), err)
		}
		hits, err := ddata.Get(ctx, w.sites[1-i].data, ddata.Key[crdt.GCounter]("hits"), ddata.ReadMajority())
		if err != nil || hits.Value() != uint64(w.counter) {
			w.Fatalf("%s: the counter at %v is %v, %v; want %d", phase, w.sites[1-i].Self(), hits.Value(), err, w.counter)
		}
		if got, err := s.proxy.Ask(ctx, []byte("?")); string(got) != "?" || err != nil {
			w.Fatalf("%s: the singleton answers %q, %v", phase, got, err)
		}
		for _, other := range w.sites {
			if m, known := s.State().Member(other.Self()); !known || m.Status != cluster.Up || s.Err() != nil {
				w.Fatalf("%s: %v is %v at %v, whose error is %v; want up", phase, other.Self(), m.Status, s.Self(), s.Err())
			}
		}
	}
}

// counted returns how many frames and messages the healthy nodes have dropped, refused or ignored,
// by reason.
func (w *hostileWorld) counted() map[string]uint64 {
	w.Helper()
	counts := map[string]uint64{}
	for _, s := range w.sites {
		stats := figures(w.T, s.Node)
		data, err := s.data.Stats(w.Context())
		w.must(err)
		tills, err := s.tills.State(w.Context())
		w.must(err)
		for why, n := range stats.Transport.Dropped {
			counts["transport "+transport.Reason(why).String()] += n
		}
		for why, n := range stats.Dropped {
			counts["node "+cluster.DropReason(why).String()] += n
		}
		for why, n := range stats.Membership.Dropped {
			counts["membership "+why] += n
		}
		for why, n := range data.Protocol.Dropped {
			counts["replication "+why] += n
		}
		counts["singleton"] += stats.Malformed + stats.Refused + stats.Ignored
		counts["replication malformed"] += data.Malformed
		counts["sharding"] += tills.Dropped + tills.Ignored
	}
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	counts["total"] = total
	return counts
}

// attempt is a message of a hostile node.
type attempt struct {
	name  string
	kind  transport.Kind
	typ   link.Type
	lanes []transport.Lane
	data  []byte
	// answered messages are answered to all senders: a node may receive them before the gossip
	// about a new member.
	answered bool
	// trusted messages are accepted from members.
	trusted bool
	garbage bool
}

// messages returns a message of each type of each protocol, as the node x would forge them to a
// node: with the highest terms, rounds, numbers and clocks.
func (w *hostileWorld) messages(x, to identity.Node) (all []attempt) {
	w.Helper()
	const high = 1 << 63
	control, others := []transport.Lane{transport.Control}, []transport.Lane{transport.Data, transport.Bulk}
	add := func(name string, kind transport.Kind, lanes []transport.Lane, data []byte) *attempt {
		all = append(all, attempt{name: name, kind: kind, typ: link.Tell, lanes: lanes, data: data})
		return &all[len(all)-1]
	}
	var g membership.Gossip
	g, err := g.Apply(x, membership.Change{Put: []*identity.Member{{Node: to, Status: identity.Down, UpNumber: 1}, {Node: x, Status: identity.Up, UpNumber: math.MaxInt32}}})
	w.must(err)
	for _, m := range []membership.Message{
		membership.InitJoinAck{Compatible: true},
		membership.InitJoinNack{},
		membership.Welcome{State: membership.StateOf(g)},
		membership.NameInUse{Holder: x},
		membership.Pong{},
		membership.Digests{},
		membership.Versions{},
		membership.Seen{},
		membership.StateOf(g),
		membership.Heartbeat{Nr: high, At: math.MaxInt64},
		membership.HeartbeatReply{Nr: high, At: math.MaxInt64},
		membership.Echo{Nr: high},
		membership.ExitingConfirmed{},
		membership.Quarantined{},
		membership.Stranger{},
		membership.LivenessQuery{Nr: high},
		membership.LivenessReply{Nr: high},
	} {
		sent := add("membership "+membership.KindOf(m).String(), transport.Kind(membership.KindOf(m)), control, membership.AppendMessage(nil, m))
		kind := membership.KindOf(m)
		sent.answered = kind == membership.KindHeartbeat
		sent.trusted = kind == membership.KindState || kind == membership.KindWelcome
	}
	for kind := singleton.HandOverToMe; kind <= singleton.InstanceGone; kind++ {
		add("singleton "+kind.String(), transport.Kind(node.KindSingleton), control, singleton.AppendMessage(nil, singleton.Message{Kind: kind, Singleton: "echo", Round: high, Hosted: true}))
	}
	add("forwarded", transport.Kind(node.KindForwarded), others, []byte("\x01\x04echo?"))
	entry := replication.Entry{Key: "forged", Deleted: true}
	for _, m := range []replication.Message{
		replication.Write{Nr: high, Entry: entry},
		replication.Delta{Nr: high},
		replication.Ack{Nr: high, Verdict: replication.Merged},
		replication.Read{Nr: high, Key: "hits"},
		replication.ReadResult{Nr: high, Entry: &entry},
		replication.Root{},
		replication.Groups{},
		replication.Buckets{},
		replication.Keys{},
		replication.Uses{},
		replication.Want{Keys: []string{"hits"}},
		replication.Gossip{SendBack: true, Entries: []replication.Entry{entry}},
		replication.Pull{Nr: high, To: 1},
		replication.Chunk{Nr: high, Done: true, Entries: []replication.Entry{entry}},
		replication.Part{Nr: high, Count: high, Data: []byte{1}},
	} {
		packet := append([]byte{1, byte(len(ddata.DefaultName))}, ddata.DefaultName...)
		encoded := replication.AppendMessage(nil, m)
		packet = append(binary.AppendUvarint(packet, uint64(len(encoded))), encoded...)
		add(fmt.Sprintf("replication %T", m), transport.FirstReplicationKind, others, packet)
	}
	for kind := coordinator.Register; kind <= coordinator.Refused; kind++ {
		add("coordinator "+kind.String(), transport.Kind(shardcore.KindCoordinator), others, coordinator.AppendMessage(nil, coordinator.Message{
			Kind: kind, Type: "till", Term: high, Round: high, Instance: 1, Shards: []coordinator.Shard{1, 2, 3},
		}))
	}
	for id := range 20 {
		name := fmt.Sprint("till-", id)
		shard, err := w.sites[0].tills.ShardOf(name)
		w.must(err)
		body := append(binary.AppendUvarint([]byte{0x10, 0}, 3), "add"...)
		body = append(binary.AppendUvarint(body, 9), "\x81\xa6Amount\x64"...)
		add("command", transport.Kind(shardcore.KindRegion), others, region.AppendPacket(nil, region.Packet{
			Type: "till", Frame: region.Frame{Kind: region.Forward, Shard: shard}, Entity: name, Body: body,
		})).trusted = true
	}
	for kind := region.NotHome; kind <= region.Flushed; kind++ {
		add(fmt.Sprint("region ", kind), transport.Kind(shardcore.KindRegion), others, region.AppendPacket(nil, region.Packet{
			Type: "till", Frame: region.Frame{Kind: kind, Instance: high, ID: high, Shards: []region.Shard{1}},
		}))
	}
	for number := range uint64(20) {
		add("reply", 202, others, append(binary.AppendUvarint([]byte{0x10, 1}, number), 3))
	}
	add("query", 203, others, []byte{0x10, 1}).typ = link.Request
	for _, kind := range []transport.Kind{0, 1, 4, 12, 19, 40, 41, 42, 100, 101, 200, 201, 202, 203, 204, 1000, 65535} {
		for i, garbage := range [][]byte{nil, {0xff}, bytes.Repeat([]byte{0xff}, 100), bytes.Repeat([]byte{0x10, 0}, 100), bytes.Repeat([]byte{1}, 1000), make([]byte, 200_000)} {
			add(fmt.Sprintf("garbage %d of kind %d", i, kind), kind, []transport.Lane{transport.Control, transport.Data, transport.Bulk}, garbage).garbage = true
		}
	}
	return all
}

// attack sends messages to each healthy node under the identities of some nodes. It returns the
// number of frames.
func (w *hostileWorld) attack(carrier transport.Carrier, x identity.Node, senders []identity.Node, which func(attempt) bool) (sent uint64) {
	w.Helper()
	for _, s := range w.sites {
		for _, as := range senders {
			for _, m := range w.messages(x, s.Self()) {
				for _, lane := range m.lanes {
					if which(m) {
						w.must(carrier.Send(lane, s.Self(), link.AppendFrame(nil, w.frame(as, s.Self(), lane, m))))
						sent++
					}
				}
			}
			for _, frame := range w.damaged(as, s.Self()) {
				w.must(carrier.Send(transport.Data, s.Self(), frame))
				sent++
			}
		}
	}
	w.attempts += sent
	return sent
}

// attackAsMember sends messages to each healthy node through the links of a member. It returns the
// number of messages.
func (w *hostileWorld) attackAsMember(member *cluster.Node, which func(attempt) bool) (sent uint64) {
	w.Helper()
	for _, s := range w.sites {
		for _, m := range w.messages(member.Self(), s.Self()) {
			for _, lane := range m.lanes {
				if which(m) {
					w.must(member.Transport().Send(s.Self(), lane, m.kind, m.data))
					sent++
				}
			}
		}
	}
	w.attempts += sent
	return sent
}

// frame returns the frame of a message as the first of a new link.
func (w *hostileWorld) frame(from, to identity.Node, lane transport.Lane, m attempt) link.Frame {
	w.Helper()
	machine, err := link.New(link.Config{Self: from, MaxFrame: 1 << 20, FrameSize: 1 << 20})
	w.must(err)
	message := link.Message{Type: m.typ, Kind: link.Kind(m.kind), Payload: m.data}
	if m.typ == link.Request {
		message.Correlation = math.MaxUint64
	}
	w.must(machine.Send(to, link.Lane(lane), message))
	_, encoded, ok := machine.Flush(0, link.Lane(lane), nil)
	if !ok {
		w.Fatalf("no frame for %s", m.name)
	}
	f, err := link.DecodeFrame(encoded)
	w.must(err)
	if f.Sequenced {
		w.epoch++
		f.Epoch = w.epoch
	}
	return f
}

// damaged returns frames with invalid headers and sizes.
func (w *hostileWorld) damaged(from, to identity.Node) (frames [][]byte) {
	w.Helper()
	valid := func() link.Frame {
		return w.frame(from, to, transport.Data, attempt{name: "valid", kind: transport.FirstUserKind, typ: link.Tell})
	}
	encoded := link.AppendFrame(nil, valid())
	for size := range encoded {
		frames = append(frames, encoded[:size])
	}
	for _, change := range []func(*link.Frame){
		func(f *link.Frame) { f.Lane = link.Bulk },
		func(f *link.Frame) { f.Lane = 3 },
		func(f *link.Frame) { f.To++ },
		func(f *link.Frame) { f.To = 0 },
		func(f *link.Frame) { f.Epoch = 0 },
		func(f *link.Frame) { f.Number, f.Offset = 1<<63, math.MaxInt64 },
		func(f *link.Frame) { f.Offset = math.MaxInt64 },
		func(f *link.Frame) { f.Body = append([]byte{1 | 1<<6, 1, 0}, binary.AppendUvarint(nil, 1<<50)...) },
		func(f *link.Frame) { f.Body = append(binary.AppendUvarint([]byte{1 | 1<<6, 1, 0}, 1<<50), 1, 0) }, // a part of a message of 2^50 bytes
		func(f *link.Frame) { f.Body = append(binary.AppendUvarint([]byte{1, 1, 0}, 1<<50), 1) },
		func(f *link.Frame) { f.Body = bytes.Repeat([]byte{15, 1, 0, 0}, 1000) },
	} {
		f := valid()
		change(&f)
		frames = append(frames, link.AppendFrame(nil, f))
	}
	return frames
}

// wantCounted waits until the healthy nodes have counted a number of messages more than before.
func (w *hostileWorld) wantCounted(phase string, before map[string]uint64, sent uint64) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	for {
		now := w.counted()
		if now["total"] >= before["total"]+sent {
			return
		}
		if ctx.Err() != nil {
			for why, n := range before {
				now[why] -= n
			}
			maps.DeleteFunc(now, func(_ string, n uint64) bool { return n == 0 })
			w.Fatalf("%s: %d messages were sent, %v were counted", phase, sent, now)
		}
		runtime.Gosched()
	}
}

// TestHostileNode sends each message of each protocol with the credential of a node: as a node that
// is not a member, as a member, and as a removed member, under its own name and under others. The
// healthy nodes count each message and serve entities, data and a singleton throughout. A member is
// trusted with commands, data and the statuses of members: see docs/security.md. What the server
// refuses is tested in package nats.
func TestHostileNode(t *testing.T) {
	t.Parallel()
	w := newHostileWorld(t)
	w.serve("before")
	x, err := identity.New("x")
	w.must(err)
	connect := func(self identity.Node) transport.Carrier {
		carrier, failed := nats.Connect(nats.Config{Access: w.server.Access(t, "x"), Cluster: clusterName, Self: self})
		w.must(failed)
		t.Cleanup(func() { _ = carrier.Close() })
		w.must(carrier.Start(&forger{}))
		return carrier
	}
	carrier := connect(x)
	others := []identity.Node{w.sites[0].Self(), w.sites[1].Self(), {Name: "a", UID: 1}, {Name: "y", UID: x.UID}}
	all := func(m attempt) bool { return !m.answered }

	before := w.counted()
	w.wantCounted("stranger", before, w.attack(carrier, x, []identity.Node{x, {Name: "x", UID: 1}}, all))
	w.serve("stranger")
	before = w.counted()
	w.wantCounted("stranger under other names", before, w.attack(carrier, x, others, all))
	w.serve("stranger under other names")

	member := joinPlain(t, w.server.Access(t, "x"), "x")
	_, err = ddata.Start(t.Context(), member, ddata.Config{}) // each member counts in a majority
	w.must(err)
	w.serve("member")
	carrier = connect(member.Self())
	before = w.counted()
	w.wantCounted("member under other names", before, w.attack(carrier, member.Self(), others, all))
	w.serve("member under other names")
	w.attackAsMember(member, func(m attempt) bool { return !m.garbage && !m.trusted })
	w.serve("member under its own name")
	before = w.counted()
	w.wantCounted("member with garbage", before, w.attackAsMember(member, func(m attempt) bool { return m.garbage }))
	w.serve("member with garbage")

	w.must(w.sites[0].Down(t.Context(), member.Self()))
	until(t, "removal of x", func() bool {
		return !slices.ContainsFunc(w.sites, func(s *site) bool { _, known := s.State().Member(member.Self()); return known })
	})
	w.serve("removed")
	before = w.counted()
	w.wantCounted("removed member", before, w.attack(carrier, member.Self(), append(others, member.Self(), identity.Node{Name: "x", UID: 1}), all))
	w.serve("removed member")
	t.Logf("%d messages", w.attempts)
}
