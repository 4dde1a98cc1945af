// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replica_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is a replicator of a test.
type one struct {
	*replica.Machine

	node  identity.Node
	actor *crdt.Self
}

func machines(tb testing.TB, n int, change func(*replica.Config)) []one {
	tb.Helper()
	all := make([]one, n)
	members := &replication.Members{}
	for i := range all {
		node := identity.Node{Name: fmt.Sprintf("n%d", i), UID: uint64(i) + 1}
		actor, err := crdt.NewSelf(node)
		if err != nil {
			tb.Fatal(err)
		}
		cfg := replica.Config{
			Name: "carts", MaxPayload: 1 << 20,
			Protocol: replication.Config{Self: actor, Rand: rand.New(rand.NewPCG(1, node.UID)), GossipInterval: time.Hour},
		}
		change(&cfg)
		m, err := replica.New(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		all[i] = one{m, node, actor}
		members.All = append(members.All, membership.Member{Node: node, Status: membership.Up, UpNumber: int32(i) + 1})
	}
	for _, o := range all {
		o.Step(0, replica.Batch{Members: members})
	}
	return all
}

func (o one) add(id uint64, key string, level replication.Level) replication.Input {
	return replication.Update{Request: replication.Request{ID: id, Key: key, Level: level}, Modify: func(v crdt.Value) (crdt.Value, error) {
		c, err := crdt.As[crdt.GCounter](nil, v)
		if err != nil {
			return v, err
		}
		return (*crdt.Types)(nil).Value(c.Add(o.actor, 1))
	}}
}

// All messages to a node of one step are sent in one packet and processed in order.
func TestPackets(t *testing.T) {
	t.Parallel()
	all := machines(t, 2, func(*replica.Config) {})
	a, b := all[0], all[1]
	var in []replication.Input
	for i := range uint64(50) {
		in = append(in, a.add(i+1, fmt.Sprintf("key-%d", i), replication.Level{Kind: replication.All}))
	}
	e := a.Step(time.Second, replica.Batch{Inputs: in})
	if len(e.Send) != 1 || e.Send[0].To != b.node || e.Send[0].Bulk || len(e.Values) != 50 || len(e.Replies) != 0 {
		t.Fatalf("%d packets, %d values, %d replies", len(e.Send), len(e.Values), len(e.Replies))
	}
	if name, ok := replica.NameOf(e.Send[0].Payload); !ok || string(name) != "carts" || a.Name() != "carts" {
		t.Errorf("it is for %q", name)
	}
	e = b.Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: a.node, Payload: e.Send[0].Payload}}})
	if len(e.Send) != 1 || len(e.Values) != 50 || b.Protocol().Root() != a.Protocol().Root() {
		t.Fatalf("%d packets, %d values", len(e.Send), len(e.Values))
	}
	e = a.Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: b.node, Payload: e.Send[0].Payload}}})
	if len(e.Replies) != 50 || e.Replies[7].ID != 8 || e.Replies[7].Outcome != replication.Done || e.Replies[7].Answered != 2 {
		t.Errorf("%d replies", len(e.Replies))
	}
	e = a.Step(2*time.Second, replica.Batch{Inputs: []replication.Input{replication.Stop{}}})
	if !e.Stopped || a.Next() != replica.Never {
		t.Error("it has not stopped")
	}
}

// Returned effects are reused, except packets, which may still be in transit.
func TestReuse(t *testing.T) {
	t.Parallel()
	all := machines(t, 2, func(*replica.Config) {})
	a := all[0]
	id := uint64(0)
	step := func() replica.Effects {
		id += 2
		level := replication.Level{Kind: replication.All}
		return a.Step(time.Second, replica.Batch{Inputs: []replication.Input{a.add(id, fmt.Sprint("key-", id), level), a.add(id+1, "bad*", level)}})
	}
	first := step()
	second := step()
	if len(first.Send) != 1 || first.Values[0].Key != "key-2" || first.Replies[0].ID != 3 {
		t.Fatalf("used again, though nobody has given it back: %+v", first)
	}
	payload := second.Send[0].Payload
	sent := bytes.Clone(payload)
	a.Reuse(second)
	third := step()
	if len(third.Values) != 1 || len(third.Replies) != 1 || len(third.Send) != 1 || len(third.Notes)+len(third.Store)+len(third.Events) > 0 ||
		third.Values[0].Key != "key-6" || third.Replies[0].ID != 7 {
		t.Errorf("something is left of what it was: %+v", third)
	}
	if &third.Values[0] != &second.Values[0] || &third.Replies[0] != &second.Replies[0] || &third.Send[0] != &second.Send[0] {
		t.Error("what is given back is not used again")
	}
	a.Reuse(step())
	step()
	if third.Values[0].Key != "key-6" {
		t.Errorf("used again, though nobody has given it back: %+v", third)
	}
	if !bytes.Equal(payload, sent) {
		t.Error("a packet was changed that has been sent")
	}
	heard := all[1].Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: a.node, Payload: payload}}})
	if len(heard.Values) != 1 || heard.Values[0].Key != "key-4" {
		t.Errorf("it says %+v", heard.Values)
	}
}

// Packets have a maximum size, except for larger single messages, and preserve the order per node
// and lane.
func TestPacketsAreLimited(t *testing.T) {
	t.Parallel()
	all := machines(t, 3, func(c *replica.Config) { c.Protocol.DisableDeltas = true })
	a := all[0]
	large := strings.Repeat("x", 40<<10)
	var in []replication.Input
	for i := range uint64(6) {
		in = append(in, replication.Update{
			Request: replication.Request{ID: i + 1, Key: fmt.Sprintf("key-%d", i), Level: replication.Level{Kind: replication.All}},
			Modify: func(crdt.Value) (crdt.Value, error) {
				s, err := crdt.GSet[string]{}.Add(strings.Repeat(large, 1+int(i)/5*4)) // the last one has 160 KiB
				if err != nil {
					return crdt.Value{}, err
				}
				return (*crdt.Types)(nil).Value(s)
			},
		})
	}
	e := a.Step(time.Second, replica.Batch{Inputs: in})
	if len(e.Send) != 12 {
		t.Errorf("%d packets", len(e.Send))
	}
	for _, s := range e.Send {
		for i, o := range all {
			if o.node == s.To {
				all[i].Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: a.node, Payload: s.Payload}}})
			}
		}
		if len(s.Payload) > 70<<10 && len(s.Payload) < 160<<10 {
			t.Errorf("a packet of %d bytes", len(s.Payload))
		}
	}
	if root := a.Protocol().Root(); root != all[1].Protocol().Root() || root != all[2].Protocol().Root() {
		t.Error("they don't hold the same")
	}
}

// Bulk packets are smaller, because the loop processes them one at a time between urgent packets.
func TestBulkPacketsAreSmall(t *testing.T) {
	t.Parallel()
	all := machines(t, 2, func(*replica.Config) {})
	a, b := all[0], all[1]
	e := a.Step(time.Second, replica.Batch{Inputs: []replication.Input{a.add(1, "key", replication.Level{Kind: replication.All})}})
	wants := slices.Clone(e.Send[0].Payload[:2+len("carts")])
	for i := range uint64(12) {
		key := fmt.Sprintf("set-%d", i)
		a.Step(time.Second, replica.Batch{Inputs: []replication.Input{replication.Update{
			Request: replication.Request{ID: i + 2, Key: key},
			Modify: func(crdt.Value) (crdt.Value, error) {
				s, err := crdt.GSet[string]{}.Add(strings.Repeat("x", 5000))
				if err != nil {
					return crdt.Value{}, err
				}
				return (*crdt.Types)(nil).Value(s)
			},
		}}})
		want := replication.AppendMessage(nil, replication.Want{Keys: []string{key}})
		wants = append(append(wants, byte(len(want))), want...)
	}
	e = a.Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: b.node, Payload: wants}}})
	if len(e.Send) != 4 {
		t.Errorf("%d packets", len(e.Send))
	}
	for _, s := range e.Send {
		if !s.Bulk || len(s.Payload) > 16<<10 {
			t.Errorf("a packet of %d bytes, bulk: %t", len(s.Payload), s.Bulk)
		}
		b.Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: a.node, Payload: s.Payload}}})
	}
	if n := len(b.Protocol().Keys()); n != 12 {
		t.Errorf("%d keys have come", n)
	}
}

// A malformed packet is counted, and the messages before the fault are processed.
func TestMalformedPackets(t *testing.T) {
	t.Parallel()
	all := machines(t, 2, func(*replica.Config) {})
	a, b := all[0], all[1]
	e := a.Step(time.Second, replica.Batch{Inputs: []replication.Input{a.add(1, "key", replication.Level{Kind: replication.All})}})
	good := e.Send[0].Payload
	for n := range good {
		if _, ok := replica.NameOf(good[:n]); ok != (n >= 7) {
			t.Errorf("the first %d bytes: %t", n, ok)
		}
		e = b.Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: a.node, Payload: good[:n]}}})
		if len(e.Values) > 0 || (len(e.Notes) == 0) != (n == 7) {
			t.Errorf("the first %d bytes: %+v", n, e)
		}
	}
	if got := b.Malformed(); got != uint64(len(good)-1) {
		t.Errorf("%d were malformed", got)
	}
	e = b.Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: a.node, Payload: append(bytes.Clone(good), 99)}}})
	if len(e.Values) != 1 || len(e.Notes) != 1 || e.Notes[0].Kind != replication.NoteMalformed {
		t.Errorf("%+v", e)
	}
	if _, ok := replica.NameOf(append([]byte{9}, good[1:]...)); ok {
		t.Error("another version was taken")
	}
}

func FuzzPacket(f *testing.F) {
	all := machines(f, 2, func(*replica.Config) {})
	e := all[0].Step(time.Second, replica.Batch{Inputs: []replication.Input{all[0].add(1, "key", replication.Level{Kind: replication.All})}})
	f.Add(e.Send[0].Payload)
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		all := machines(t, 2, func(*replica.Config) {})
		all[1].Step(time.Second, replica.Batch{Packets: []replica.Packet{{From: all[0].node, Payload: b}}})
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	actor, err := crdt.NewSelf(identity.Node{Name: "a", UID: 1})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for want, cfg := range map[string]replica.Config{
		"Config.Name":       {Name: "a b", MaxPayload: 1 << 20, Protocol: replication.Config{Self: actor, Rand: random}},
		"Config.MaxMessage": {Name: "a", MaxPayload: 1 << 10, Protocol: replication.Config{Self: actor, Rand: random}},
		"Config.Self":       {Name: "a", MaxPayload: 1 << 20, Protocol: replication.Config{Rand: random}},
	} {
		if _, err := replica.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
}

// Only the last record of each key is written, and its result is reported for all replaced records.
func TestBacklog(t *testing.T) {
	t.Parallel()
	var b replica.Backlog
	store := func(nr uint64, key, data string) replication.Store {
		return replication.Store{Nr: nr, Key: key, Data: []byte(data)}
	}
	text := func(w replica.Writing) string {
		var parts []string
		for _, r := range w.Records {
			parts = append(parts, r.Key+"="+string(r.Data))
		}
		return fmt.Sprint(strings.Join(parts, " "), w.Nrs)
	}
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s\n%s", got, want)
		}
	}
	check(text(b.Take(10, 100)), "[]")
	b.Add([]replication.Store{store(1, "a", "1"), store(2, "b", "2"), store(3, "a", "3"), {Nr: 4, Key: "c"}})
	if b.Len() != 3 {
		t.Errorf("%d wait", b.Len())
	}
	first := b.Take(2, 100)
	check(text(first), "a=3 b=2[1 3 2]")
	b.Add([]replication.Store{store(5, "b", "5")})
	b.Return(first)
	check(text(b.Take(10, 100)), "c= b=5 a=3[4 5]")
	check(text(b.Take(10, 100)), "[]")
	b.Add([]replication.Store{store(6, "large", strings.Repeat("x", 50)), store(7, "d", "7"), store(8, "e", "8")})
	check(text(b.Take(10, 10)), "large="+strings.Repeat("x", 50)+"[6]")
	check(text(b.Take(10, 3)), "d=7[7]")
	b.Add([]replication.Store{store(9, "d", "9")})
	check(text(b.Take(10, 100)), "e=8 d=9[8 9]")

	fit, unfit := replica.Fit([]replication.Store{store(1, "a", "1"), store(2, strings.Repeat("k", 600), "2"), store(3, "c", "3")})
	if len(fit) != 2 || len(unfit) != 1 || !slices.Equal(unfit[0].Nrs, []uint64{2}) || !errors.Is(unfit[0].Err, durable.ErrInvalid) {
		t.Errorf("%v %v", fit, unfit)
	}
}
