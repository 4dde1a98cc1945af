// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

var carol = identity.Node{Name: "carol:1", UID: 0xca401}

func (e *end) wantRoom(lane link.Lane, queued, held int) {
	e.t.Helper()
	if s := e.Stats().Lanes[lane]; s.Queued != queued || s.Held != held {
		e.t.Errorf("%d bytes are queued and %d held, want %d and %d", s.Queued, s.Held, queued, held)
	}
}

const cost64 = 64<<10 + 256 // of kib64

// The queued bytes of all peers of a lane are limited. Sending, forgetting and quarantining release
// queued bytes.
func TestQueuesOfAllPeers(t *testing.T) {
	t.Parallel()
	a := open(t, alice, small, func(c *link.Config) { c.MaxQueue, c.MaxQueueAll = 100<<10, 150<<10 })
	b, m, c := open(t, bob), open(t, mallory), open(t, carol)
	refused := func(to identity.Node, lane link.Lane) {
		t.Helper()
		if err := a.Send(to, lane, kib64); !errors.Is(err, link.ErrBackpressure) {
			t.Errorf("Send beyond the limit of all queues: %v, want ErrBackpressure", err)
		}
	}
	for _, lane := range []link.Lane{link.Data, link.Control} { // each lane has its own limit
		a.send(b, lane, kib64)
		a.send(m, lane, kib64)
		refused(carol, lane)
		a.wantRoom(lane, 2*cost64, 0)
	}
	refused(identity.Node{Name: "name:1"}, link.Control)
	if n := a.Stats().Refused; n != 3 {
		t.Errorf("%d messages were counted as refused, want 3", n)
	}
	a.frames(link.Data)
	a.send(c, link.Data, kib64)
	a.send(m, link.Data, kib64)
	refused(bob, link.Data)
	a.Forget(carol)
	a.send(b, link.Data, kib64)
	refused(carol, link.Data)
	a.Quarantine(mallory, true)
	a.send(c, link.Data, kib64)
	a.wantRoom(link.Data, 2*cost64, 0)
	a.wantRoom(link.Control, cost64, 0)
	a.frames(link.Data)
	a.frames(link.Control)
	a.wantRoom(link.Data, 0, 0)
	a.wantRoom(link.Control, 0, 0)
	if err := a.Send(identity.Node{Name: "name:1"}, link.Control, kib64); err != nil {
		t.Error(err)
	}
	a.wantRoom(link.Control, cost64, 0)
}

// The unconsumed bytes of all lanes and peers are limited, even if each peer respects its credit. A
// dropped frame leaves no state.
func TestHeldOfAllPeers(t *testing.T) {
	t.Parallel()
	b := open(t, bob, small, func(c *link.Config) { c.Budget = 4 << 20 })
	b.SetBudget(1 << 20)
	var peers []*end
	for i := range 6 {
		p := open(t, identity.Node{Name: fmt.Sprint("peer:", i), UID: uint64(i) + 1}, small)
		peers = append(peers, p)
		p.send(b, link.Data, kib64, kib64, kib64)
		b.move(p, link.Data)
	}
	held := len(b.got)
	b.wantDropped(link.Overload, uint64(18-held))
	b.wantDropped(link.OverCredit, 0)
	b.wantRoom(link.Data, 0, held*cost64)
	if held < 12 || held > 15 {
		t.Errorf("%d messages of 64 KiB are unconsumed with a budget of 1 MiB, want 12 to 15", held)
	}
	b.SetBudget(4 << 20)
	peers[0].send(b, link.Bulk, kib64) // the lanes share the budget
	b.move(peers[0], link.Bulk)
	b.wantRoom(link.Bulk, 0, cost64)
	if b.Held() != (held+1)*cost64 {
		t.Errorf("%d bytes are held, want %d", b.Held(), (held+1)*cost64)
	}

	// Bytes received from a forgotten peer still count.
	b.got = nil
	b.Forget(peers[0].self)
	b.wantRoom(link.Data, 0, held*cost64)
	for _, p := range peers {
		b.Consume(p.self, link.Data, 3*cost64)
	}
	b.Consume(peers[0].self, link.Bulk, cost64)
	b.wantRoom(link.Data, 0, 0)
	b.wantRoom(link.Bulk, 0, 0)
	last := peers[5]
	for range 40 {
		last.send(b, link.Data, kib64)
		last.now += time.Second
		last.Tick(last.now)
		b.move(last, link.Data)
		b.consume(last, link.Data)
		grants(last, b)
	}
	b.move(last, link.Data)
	if n := last.Stats().Lanes[link.Data]; n.Queued > 0 {
		t.Errorf("%d bytes are still queued", n.Queued)
	}
}

// All incarnations and lanes of a name together may hold as many bytes as are free, so that the
// messages of another name are still received. Consumed messages make room.
func TestShareOfName(t *testing.T) {
	t.Parallel()
	const budget = 4 << 20
	b := open(t, bob, small, func(c *link.Config) { c.Budget = budget })
	var incarnations []*end
	fill := func() {
		for i := range 8 {
			m := open(t, identity.Node{Name: mallory.Name, UID: uint64(i) + 100}, small)
			for _, lane := range []link.Lane{link.Data, link.Bulk} {
				for range 3 {
					m.send(b, lane, kib64)
				}
				b.move(m, lane)
			}
			incarnations = append(incarnations, m)
		}
		name := identity.Node{Name: bob.Name}
		m := incarnations[0]
		for range 8 {
			if err := m.Send(name, link.Control, kib64); err != nil {
				t.Fatal(err)
			}
		}
		b.move(m, link.Control)
	}
	fill()
	if s := b.Stats().Lanes; s[link.Data].Held+s[link.Bulk].Held > budget/2 || b.Held() < budget/2-2*cost64 || b.Held() > budget*2/3 {
		t.Errorf("one name holds %d bytes, %d on the lanes with credit, want half of %d and at most two thirds with the lane Control", b.Held(), s[link.Data].Held+s[link.Bulk].Held, budget)
	}
	if b.Stats().Dropped[link.Overload] == 0 {
		t.Error("no frame was dropped")
	}
	hostile := b.got
	b.got = nil
	incarnations[0].send(b, link.Control, tell("heartbeat"))
	if b.move(incarnations[0], link.Control); len(b.got) != 1 {
		t.Error("the heartbeat of a name that has used up its share was dropped")
	}
	b.consume(incarnations[0], link.Control)
	a := open(t, alice, small)
	for range 3 {
		a.send(b, link.Data, kib64)
	}
	b.move(a, link.Data)
	if len(b.got) != 3 {
		t.Errorf("%d messages of another name arrived, want 3", len(b.got))
	}
	b.consume(a, link.Data)
	if len(hostile) == 0 {
		t.Error("no message of the name was delivered")
	}
	for _, lane := range []link.Lane{link.Control, link.Data, link.Bulk} {
		b.Consume(mallory, lane, budget)
	}
	if b.Held() != 0 {
		t.Errorf("%d bytes are held after all messages were consumed", b.Held())
	}
}

// A message that is a small part of its frame does not keep the frame in memory.
func TestSmallPartOfFrame(t *testing.T) {
	t.Parallel()
	b := open(t, bob)
	padding := link.Message{Type: 15, Payload: make([]byte, 1<<19)}
	receive := func(f link.Frame) (frame []byte, payload []byte) {
		frame = link.AppendFrame(nil, f)
		got := b.Receive(0, f.Lane, alice.Name, frame).Deliver
		if len(got) != 1 {
			t.Fatalf("%d messages were delivered, want 1", len(got))
		}
		return frame, got[0].Payload
	}
	for number, test := range []struct {
		payload string
		padded  bool
		kept    bool
	}{{"", true, false}, {"x", true, false}, {strings.Repeat("x", 1<<19), true, false}, {"x", false, true}, {strings.Repeat("x", 1<<19), false, true}} {
		for _, lane := range []link.Lane{link.Control, link.Data} {
			f := link.Frame{Lane: lane, From: alice, To: bob.UID, Sequenced: true, Epoch: uint64(number) + 1, Number: 1}
			if lane == link.Control {
				f = link.Frame{Lane: lane, From: alice}
			}
			f.Body = link.AppendMessages(nil, tell(test.payload))
			if test.padded {
				f.Body = link.AppendMessages(f.Body, padding)
			}
			frame, payload := receive(f)
			if len(payload) != len(test.payload) || cap(payload) > len(payload)+8 {
				t.Errorf("a payload of %d bytes has %d bytes and room for %d", len(test.payload), len(payload), cap(payload))
			}
			clear(frame)
			if kept := len(payload) > 0 && payload[0] == 0; kept != test.kept {
				t.Errorf("lane %v: a payload of %d bytes in a frame of %d keeps the frame: %t, want %t", lane, len(test.payload), len(frame), kept, test.kept)
			}
		}
	}
}

// The bytes of an incomplete message are released when its link ends.
func TestHeldBytesOfParts(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small, func(c *link.Config) { c.MaxFrame = 32 << 10 })
	for range 2 {
		a.send(b, link.Data, kib64)
		frames := a.frames(link.Data)
		b.take(a, link.Data, frames[0])
		if s := b.Stats().Lanes[link.Data]; s.Held == 0 {
			t.Error("no bytes are held after a part of a message arrived, want its cost")
		}
		b.Forget(alice)
		b.wantRoom(link.Data, 0, 0)
		a.Forget(bob)
	}
}

// When many bytes are held, peers get less credit, but they can still send.
func TestCreditUnderLoad(t *testing.T) {
	t.Parallel()
	b := open(t, bob, small, func(c *link.Config) { c.Window, c.Budget = 4<<20, 16<<20 })
	b.SetBudget(8 << 20)
	sent := func(from *end) (messages int) {
		for range 100 {
			from.send(b, link.Data, kib64)
		}
		before := 0
		for before = -1; before < messages; {
			before = messages
			b.got = nil
			b.move(from, link.Data)
			messages += len(b.got)
			grants(from, b)
		}
		return messages
	}
	wide := func(c *link.Config) { c.Window, c.MaxQueue = 4<<20, 16<<20 }
	first := sent(open(t, mallory, small, wide))
	second := sent(open(t, alice, small, wide))
	third := sent(open(t, carol, small, wide))
	if first != 63 || second != 15 || third != 15 { // the window is 4 MiB, or 1 MiB while more than 4 MiB are held
		t.Errorf("three peers sent %d, %d and %d messages of 64 KiB, want 63, 15 and 15", first, second, third)
	}
	b.wantDropped(link.Overload, 0)
}
