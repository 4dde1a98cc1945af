// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/link"
)

const window = 4 << 20

func small(c *link.Config) { c.Window, c.MaxMessage = 1<<20, 256<<10 }

var kib64 = tell(strings.Repeat("x", 64<<10))

// grants sends the pending grants to the sender.
func grants(sender, receiver *end) { sender.move(receiver, link.Control) }

func TestCredit(t *testing.T) {
	t.Parallel()
	for _, lane := range []link.Lane{link.Data, link.Bulk} {
		a, b := pair(t, small)
		for range 40 { // 2.5 MiB, the window is 1 MiB
			a.send(b, lane, kib64)
		}
		for range 10 {
			b.move(a, lane)
			grants(a, b)
		}
		if n := len(b.got); n != 15 {
			t.Fatalf("%d messages of 64 KiB are unconsumed with a window of 1 MiB, want 15", n)
		}
		if s := a.Stats().Lanes[lane]; s.Stalls == 0 {
			t.Error("no stall was counted")
		}
		total := 0
		for range 40 {
			total += len(b.got)
			b.consume(a, lane)
			grants(a, b)
			b.move(a, lane)
		}
		if total != 40 {
			t.Errorf("%d messages arrived, want 40", total)
		}
		b.wantDropped(link.OverCredit, 0)
	}
}

func TestControlWithoutCredit(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small)
	for range 20 {
		a.send(b, link.Control, kib64)
	}
	b.move(a, link.Control)
	if len(b.got) != 15 {
		t.Errorf("%d control messages of 64 KiB are unconsumed with a window of 1 MiB, want 15", len(b.got))
	}
	b.wantDropped(link.OverCredit, 5)
	b.consume(a, link.Control)
	a.send(b, link.Control, tell("room again"))
	b.move(a, link.Control)
	b.want("room again")
}

func TestBackpressure(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small, func(c *link.Config) { c.MaxQueue = 100 << 10 })
	a.send(b, link.Data, kib64)
	if err := a.Send(bob, link.Data, kib64); !errors.Is(err, link.ErrBackpressure) {
		t.Errorf("Send beyond the limit of the queue: %v, want ErrBackpressure", err)
	}
	if n := a.Stats().Refused; n != 1 {
		t.Errorf("%d messages were counted as refused, want 1", n)
	}
	a.send(b, link.Bulk, kib64) // each lane has its own queue
	a.send(open(t, mallory), link.Data, kib64)
	b.move(a, link.Data)
	a.send(b, link.Data, kib64)
	a.send(b, link.Control, tell(strings.Repeat("x", 200<<10))) // an empty queue accepts a message of any size
}

func TestCreditOfLostFrames(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small)
	a.send(b, link.Data, tell("hello"))
	b.move(a, link.Data)
	b.consume(a, link.Data)
	grants(a, b)
	for range 15 {
		a.send(b, link.Data, kib64)
	}
	if n := len(a.frames(link.Data)); n != 15 { // all these frames are lost
		t.Fatalf("sent %d frames, want 15", n)
	}
	a.send(b, link.Data, kib64, kib64)
	b.move(a, link.Data)
	b.want()
	due, ok := a.Due()
	if !ok || due != 200*time.Millisecond {
		t.Fatalf("a sender without credit requests a grant at %v, %t, want 200ms, true", due, ok)
	}
	a.now = due
	a.Tick(a.now)
	b.move(a, link.Data) // an empty frame after the lost frames
	grants(a, b)
	b.move(a, link.Data)
	if len(b.got) != 2 || b.lost != 15 {
		t.Errorf("%d messages arrived after the loss and %d frames were reported missing, want 2 and 15", len(b.got), b.lost)
	}
	if _, ok := a.Due(); ok {
		t.Error("a sender with credit still requests a grant")
	}
}

func TestProbeInterval(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small)
	for range 8 {
		a.send(b, link.Data, kib64)
	}
	a.frames(link.Data)
	var at []time.Duration
	for range 8 {
		due, ok := a.Due()
		if !ok {
			t.Fatal("the sender no longer waits for credit")
		}
		a.now = due
		a.Tick(a.now)
		if n := len(a.frames(link.Data)); n != 1 {
			t.Fatalf("the sender sent %d credit requests, want 1", n)
		}
		at = append(at, due)
	}
	var waits []time.Duration
	for i := 1; i < len(at); i++ {
		waits = append(waits, (at[i] - at[i-1]).Round(time.Millisecond))
	}
	want := []time.Duration{400, 800, 1600, 3200, 5000, 5000, 5000}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(waits, want) {
		t.Errorf("the sender requests credit after %v, want %v", waits, want)
	}
}

func TestLostAndDuplicatedGrants(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small)
	got := 0
	for round := range 60 {
		if round < 40 {
			a.send(b, link.Data, kib64)
		}
		b.move(a, link.Data)
		got += len(b.got)
		b.consume(a, link.Data)
		frames := b.frames(link.Control)
		if round%3 == 0 {
			a.take(b, link.Control, frames...)
			a.take(b, link.Control, frames...)
		}
		a.now += time.Second
		a.Tick(a.now)
	}
	if got != 40 {
		t.Errorf("%d of 40 messages arrived", got)
	}
	b.wantDropped(link.OverCredit, 0)
}

// A grant is lost, and the receiver consumes too little to send another grant.
func TestLostGrant(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small)
	for range 5 {
		a.send(b, link.Data, kib64)
	}
	b.move(a, link.Data)
	got := len(b.got)
	b.consume(a, link.Data)
	b.frames(link.Control) // lost
	due, waits := a.Due()
	if !waits || got == 5 {
		t.Fatalf("%d of 5 messages arrived with the initial credit, want fewer", got)
	}
	a.now = due
	a.Tick(a.now)
	b.move(a, link.Data)
	grants(a, b)
	b.move(a, link.Data)
	if got += len(b.got); got != 5 {
		t.Errorf("%d of 5 messages arrived", got)
	}
}

func TestFrameBeyondCredit(t *testing.T) {
	t.Parallel()
	b := open(t, bob, small)
	body := link.AppendMessages(nil, slices.Repeat([]link.Message{tell(strings.Repeat("x", 200<<10))}, 5)...)
	f := link.Frame{Lane: link.Data, From: alice, To: bob.UID, Sequenced: true, Epoch: 1, Number: 1, Body: body}
	if eff := b.Receive(0, link.Data, alice.Name, link.AppendFrame(nil, f)); eff.Dropped != 0 || len(eff.Deliver) != 5 {
		t.Fatalf("frame within the credit: dropped as %v, %d messages delivered, want none and 5", eff.Dropped, len(eff.Deliver))
	}
	f.Number, f.Offset = 2, 10<<20
	if eff := b.Receive(0, link.Data, alice.Name, link.AppendFrame(nil, f)); eff.Dropped != link.OverCredit || len(eff.Deliver) != 0 {
		t.Errorf("frame beyond the credit: dropped as %v, %d messages delivered, want OverCredit and 0", eff.Dropped, len(eff.Deliver))
	}
	f.Number, f.Offset = 3, 1<<20 // an offset below the credit already used
	if eff := b.Receive(0, link.Data, alice.Name, link.AppendFrame(nil, f)); eff.Dropped != link.Malformed {
		t.Errorf("frame with a lower offset: dropped as %v, want Malformed", eff.Dropped)
	}
}

func TestCostOfEmptyMessages(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small)
	n := 0
	for ; a.Send(bob, link.Data, tell("")) == nil; n++ {
	}
	if n > window/32 {
		t.Errorf("%d empty messages are queued, want at most %d", n, window/32)
	}
	for range 5 {
		b.move(a, link.Data)
		grants(a, b)
	}
	if len(b.got) > (1<<20)/64 {
		t.Errorf("%d empty messages are unconsumed, want at most %d", len(b.got), (1<<20)/64)
	}
}
