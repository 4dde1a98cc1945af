// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// one is a machine with its node and Self.
type one struct {
	*replication.Machine

	node  identity.Node
	actor *crdt.Self
}

func machines(tb testing.TB, n int, change func(*replication.Config)) []one {
	tb.Helper()
	all := make([]one, n)
	members := &replication.Members{}
	for i := range all {
		node := identity.Node{Name: fmt.Sprintf("n%d", i), UID: uint64(i) + 1}
		actor, err := crdt.NewSelf(node)
		if err != nil {
			tb.Fatal(err)
		}
		cfg := replication.Config{
			Name: "carts", Self: actor, Rand: rand.New(rand.NewPCG(1, node.UID)), GossipInterval: time.Hour, MaxMessage: 1<<20 - replication.Overhead,
		}
		change(&cfg)
		m, err := replication.New(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		all[i] = one{m, node, actor}
		members.All = append(members.All, identity.Member{Node: node, Status: identity.Up, UpNumber: int32(i) + 1})
	}
	for _, o := range all {
		o.Step(0, replication.Batch{Members: members})
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
	all := machines(t, 2, func(*replication.Config) {})
	a, b := all[0], all[1]
	var in []replication.Input
	for i := range uint64(50) {
		in = append(in, a.add(i+1, fmt.Sprintf("key-%d", i), replication.Level{Kind: replication.All}))
	}
	e := a.Step(time.Second, replication.Batch{Inputs: in})
	if len(e.Send) != 1 || e.Send[0].To != b.node || e.Send[0].Bulk || len(e.Values) != 50 || len(e.Replies) != 0 {
		t.Fatalf("got %d packets, %d values, %d replies, want 1, 50 and 0", len(e.Send), len(e.Values), len(e.Replies))
	}
	if name, ok := replication.NameOf(e.Send[0].Payload); !ok || string(name) != "carts" {
		t.Errorf("the packet is for %q, want \"carts\"", name)
	}
	e = b.Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: a.node, Payload: e.Send[0].Payload}}})
	if len(e.Send) != 1 || len(e.Values) != 50 || b.Root() != a.Root() {
		t.Fatalf("got %d packets, %d values, want 1 and 50, and equal roots", len(e.Send), len(e.Values))
	}
	e = a.Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: b.node, Payload: e.Send[0].Payload}}})
	if len(e.Replies) != 50 || e.Replies[7].ID != 8 || e.Replies[7].Outcome != replication.Done || e.Replies[7].Answered != 2 {
		t.Errorf("got %d replies, want 50 that are Done", len(e.Replies))
	}
	e = a.Step(2*time.Second, replication.Batch{Inputs: []replication.Input{replication.Stop{}}})
	if !e.Stopped || a.Next() != replication.Never {
		t.Error("the machine did not stop")
	}
}

// Returned effects are reused, except packets, which may still be in transit.
func TestReuse(t *testing.T) {
	t.Parallel()
	all := machines(t, 2, func(*replication.Config) {})
	a := all[0]
	id := uint64(0)
	step := func() replication.Effects {
		id += 2
		level := replication.Level{Kind: replication.All}
		return a.Step(time.Second, replication.Batch{Inputs: []replication.Input{a.add(id, fmt.Sprint("key-", id), level), a.add(id+1, "bad*", level)}})
	}
	first := step()
	second := step()
	if len(first.Send) != 1 || first.Values[0].Key != "key-2" || first.Replies[0].ID != 3 {
		t.Fatalf("effects were reused without a call of Reuse: %+v", first)
	}
	payload := second.Send[0].Payload
	sent := bytes.Clone(payload)
	a.Reuse(second)
	third := step()
	if len(third.Values) != 1 || len(third.Replies) != 1 || len(third.Send) != 1 || len(third.Notes)+len(third.Store)+len(third.Events) > 0 ||
		third.Values[0].Key != "key-6" || third.Replies[0].ID != 7 {
		t.Errorf("the effects contain effects of an earlier step: %+v", third)
	}
	if &third.Values[0] != &second.Values[0] || &third.Replies[0] != &second.Replies[0] || &third.Send[0] != &second.Send[0] {
		t.Error("the memory was not reused")
	}
	a.Reuse(step())
	step()
	if third.Values[0].Key != "key-6" {
		t.Errorf("effects were reused without a call of Reuse: %+v", third)
	}
	if !bytes.Equal(payload, sent) {
		t.Error("a sent packet was modified")
	}
	received := all[1].Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: a.node, Payload: payload}}})
	if len(received.Values) != 1 || received.Values[0].Key != "key-4" {
		t.Errorf("a later step changed the packet: got values %+v, want key-4", received.Values)
	}
}

// Packets have a maximum size, except for larger single messages, and preserve the order per node
// and lane.
func TestPacketsAreLimited(t *testing.T) {
	t.Parallel()
	all := machines(t, 3, func(c *replication.Config) { c.DisableDeltas = true })
	a := all[0]
	large := strings.Repeat("x", 40<<10)
	var in []replication.Input
	for i := range uint64(6) {
		in = append(in, replication.Update{
			Request: replication.Request{ID: i + 1, Key: fmt.Sprintf("key-%d", i), Level: replication.Level{Kind: replication.All}},
			Modify: func(crdt.Value) (crdt.Value, error) {
				s, err := crdt.GSet[string]{}.Add(strings.Repeat(large, 1+int(i)/5*4)) // the last value has 160 KiB
				if err != nil {
					return crdt.Value{}, err
				}
				return (*crdt.Types)(nil).Value(s)
			},
		})
	}
	e := a.Step(time.Second, replication.Batch{Inputs: in})
	if len(e.Send) != 12 {
		t.Errorf("got %d packets, want 12", len(e.Send))
	}
	for _, s := range e.Send {
		for i, o := range all {
			if o.node == s.To {
				all[i].Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: a.node, Payload: s.Payload}}})
			}
		}
		if len(s.Payload) > 70<<10 && len(s.Payload) < 160<<10 {
			t.Errorf("got a packet of %d bytes, want at most 70 KiB, or one large value", len(s.Payload))
		}
	}
	if root := a.Root(); root != all[1].Root() || root != all[2].Root() {
		t.Error("the roots differ")
	}
}

// Bulk packets are smaller, because the loop processes them one at a time between urgent packets.
func TestBulkPacketsAreSmall(t *testing.T) {
	t.Parallel()
	all := machines(t, 2, func(*replication.Config) {})
	a, b := all[0], all[1]
	e := a.Step(time.Second, replication.Batch{Inputs: []replication.Input{a.add(1, "key", replication.Level{Kind: replication.All})}})
	wants := slices.Clone(e.Send[0].Payload[:2+len("carts")])
	for i := range uint64(12) {
		key := fmt.Sprintf("set-%d", i)
		a.Step(time.Second, replication.Batch{Inputs: []replication.Input{replication.Update{
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
	e = a.Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: b.node, Payload: wants}}})
	if len(e.Send) != 4 {
		t.Errorf("got %d packets, want 4", len(e.Send))
	}
	for _, s := range e.Send {
		if !s.Bulk || len(s.Payload) > 16<<10 {
			t.Errorf("got a packet of %d bytes, bulk: %t, want a bulk packet of at most 16 KiB", len(s.Payload), s.Bulk)
		}
		b.Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: a.node, Payload: s.Payload}}})
	}
	if n := len(b.Keys()); n != 12 {
		t.Errorf("b has %d keys, want 12", n)
	}
}

// A malformed packet is counted, and the messages before the fault are processed.
func TestMalformedPackets(t *testing.T) {
	t.Parallel()
	all := machines(t, 2, func(*replication.Config) {})
	a, b := all[0], all[1]
	e := a.Step(time.Second, replication.Batch{Inputs: []replication.Input{a.add(1, "key", replication.Level{Kind: replication.All})}})
	good := e.Send[0].Payload
	for n := range good {
		if _, ok := replication.NameOf(good[:n]); ok != (n >= 7) {
			t.Errorf("NameOf of the first %d bytes: ok is %t, want true from 7 bytes on", n, ok)
		}
		e = b.Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: a.node, Payload: good[:n]}}})
		if len(e.Values) > 0 || (len(e.Notes) == 0) != (n == 7) {
			t.Errorf("the first %d bytes: got effects %+v, want a note unless the packet is cut between messages", n, e)
		}
	}
	if got := b.Counters().Malformed; got != uint64(len(good)-1) {
		t.Errorf("%d packets were malformed, want all that were cut", got)
	}
	e = b.Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: a.node, Payload: append(bytes.Clone(good), 99)}}})
	if len(e.Values) != 1 || len(e.Notes) != 1 || e.Notes[0].Kind != replication.NoteMalformed {
		t.Errorf("got %+v, want one value and one malformed note", e)
	}
	if _, ok := replication.NameOf(append([]byte{9}, good[1:]...)); ok {
		t.Error("NameOf accepted another version")
	}
}

func FuzzPacket(f *testing.F) {
	all := machines(f, 2, func(*replication.Config) {})
	e := all[0].Step(time.Second, replication.Batch{Inputs: []replication.Input{all[0].add(1, "key", replication.Level{Kind: replication.All})}})
	f.Add(e.Send[0].Payload)
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		all := machines(t, 2, func(*replication.Config) {})
		all[1].Step(time.Second, replication.Batch{Packets: []replication.Packet{{From: all[0].node, Payload: b}}})
	})
}
