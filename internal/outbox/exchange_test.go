// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/internal/outbox"
)

// packet is a transmission to the receiver that is not delivered yet.
type packet struct {
	nr, floor uint64
	item      string
}

// reply is an answer to the sender that is not delivered yet.
type reply struct {
	nr       uint64
	accepted bool
}

// decision is an event of the receiver.
type decision struct {
	packet
	accepted bool
}

// change is an event of the sender: a delivery, or the end of one.
type change struct {
	item     string // of a delivery
	nr       uint64 // of the end of one
	accepted bool
}

// exchange is a sender and a receiver, and a network that loses, repeats and reorders messages.
// Sender and receiver lose the events that are not stored when they crash.
type exchange struct {
	now time.Time

	changes []change
	sent    uint64 // changes stored
	out     *outbox.Outgoing[string]

	decisions []decision
	decided   uint64 // decisions stored
	waiting   []held // answers that wait for the store
	in        *outbox.Incoming[bool]
	accepts   bool

	packets []packet
	replies []reply
}

type held struct {
	reply
	after uint64 // decisions
}

func newExchange() *exchange {
	x := &exchange{now: start}
	x.restartSender()
	x.restartReceiver()
	return x
}

func (x *exchange) transmit(e outbox.Effects[string]) {
	for _, s := range e.Sends {
		x.packets = append(x.packets, packet{nr: s.Nr, floor: e.Floor, item: s.Item})
	}
}

func (x *exchange) apply(nr uint64, c change) {
	if c.item != "" {
		x.out.Add(nr, c.item)
		return
	}
	x.out.Confirm(nr, c.nr)
}

func (x *exchange) change(c change) {
	x.changes = append(x.changes, c)
	x.apply(uint64(len(x.changes)), c)
}

func (x *exchange) storeChanges(n uint64) {
	x.sent = n
	x.transmit(x.out.Durable(n, x.now))
}

func (x *exchange) restartSender() {
	x.changes = x.changes[:x.sent]
	x.out = outbox.NewOutgoing[string](config())
	for i, c := range x.changes {
		x.apply(uint64(i)+1, c)
	}
	x.transmit(x.out.Recovered(x.now))
}

// receive handles a delivery as a correct destination does.
func (x *exchange) receive(p packet) {
	accepted := x.accepts
	if x.in.Seen(p.nr) {
		var known bool
		if accepted, known = x.in.Outcome(p.nr); !known {
			accepted = true // no sender waits for this answer
		}
	} else {
		x.decisions = append(x.decisions, decision{packet: p, accepted: accepted})
		x.in.Record(p.nr, p.floor, accepted)
	}
	x.waiting = append(x.waiting, held{reply{nr: p.nr, accepted: accepted}, uint64(len(x.decisions))})
	x.storeDecisions(x.decided)
}

func (x *exchange) storeDecisions(n uint64) {
	x.decided = n
	x.waiting = slices.DeleteFunc(x.waiting, func(h held) bool {
		if h.after <= n {
			x.replies = append(x.replies, h.reply)
		}
		return h.after <= n
	})
}

func (x *exchange) restartReceiver() {
	x.decisions, x.waiting = x.decisions[:x.decided], nil
	x.in = &outbox.Incoming[bool]{}
	for _, d := range x.decisions {
		x.in.Record(d.nr, d.floor, d.accepted)
	}
}

// answered handles an answer at the sender.
func (x *exchange) answered(r reply) {
	if _, open := x.out.Find(r.nr); open {
		x.change(change{nr: r.nr, accepted: r.accepted})
	}
}

// settle runs both ends and the network without faults until no delivery is unconfirmed.
func (x *exchange) settle(t *rapid.T) {
	for range 1000 {
		for len(x.packets) > 0 {
			p := x.packets[0]
			x.packets = x.packets[1:]
			x.receive(p)
		}
		x.storeDecisions(uint64(len(x.decisions)))
		for _, r := range x.replies {
			x.answered(r)
		}
		x.replies = nil
		x.storeChanges(uint64(len(x.changes)))
		if x.out.Open() == 0 && len(x.packets) == 0 {
			return
		}
		x.now = x.now.Add(config().Interval)
		x.transmit(x.out.Tick(x.now))
	}
	t.Fatalf("%d deliveries are still unconfirmed, want 0", x.out.Open())
}

// audit compares the stored states of both sides: each delivery was either accepted exactly once,
// and the sender has the confirmation, or refused, and the sender has the refusal.
func (x *exchange) audit(t *rapid.T) {
	accepted := map[string]int{}
	for _, d := range x.decisions {
		if d.accepted {
			accepted[d.item]++
		}
	}
	var items []string
	ends := map[uint64]change{}
	for _, c := range x.changes {
		if c.item != "" {
			items = append(items, c.item)
			continue
		}
		if _, twice := ends[c.nr]; twice {
			t.Fatalf("delivery %d has two outcomes at the sender", c.nr)
		}
		ends[c.nr] = c
	}
	for i, item := range items {
		want := 0
		if ends[uint64(i)+1].accepted {
			want = 1
		}
		if accepted[item] != want {
			t.Fatalf("%q was carried out %d times, want %d, the number of confirmations at its sender", item, accepted[item], want)
		}
		delete(accepted, item)
	}
	if len(accepted) > 0 {
		t.Fatalf("the receiver carried out deliveries without an outcome at the sender: %v", accepted)
	}
}

// TestExchange checks that an Outgoing and an Incoming together carry out each delivery once, or
// never if it was refused. Messages are lost, repeated and delayed, and crashes lose states.
func TestExchange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newExchange()
		items, late := 0, []packet{}
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				for range rapid.IntRange(1, 3).Draw(t, "n") {
					items++
					x.change(change{item: string(rune('a'+items%26)) + string(rune('0'+items/26))})
				}
			},
			"store at the sender": func(t *rapid.T) {
				x.storeChanges(rapid.Uint64Range(x.sent, uint64(len(x.changes))).Draw(t, "n"))
			},
			"store at the receiver": func(t *rapid.T) {
				x.storeDecisions(rapid.Uint64Range(x.decided, uint64(len(x.decisions))).Draw(t, "n"))
			},
			"tick": func(*rapid.T) {
				x.now = x.now.Add(config().Interval)
				x.transmit(x.out.Tick(x.now))
			},
			"packet": func(t *rapid.T) {
				if len(x.packets) == 0 {
					return
				}
				i := rapid.IntRange(0, len(x.packets)-1).Draw(t, "which")
				p := x.packets[i]
				switch rapid.SampledFrom([]string{"arrives", "is lost", "is repeated", "is late"}).Draw(t, "it") {
				case "arrives":
					x.receive(p)
				case "is repeated":
					x.receive(p)
					return
				case "is late":
					late = append(late, p)
				}
				x.packets = slices.Delete(x.packets, i, i+1)
			},
			"late packet": func(t *rapid.T) {
				if len(late) == 0 {
					return
				}
				x.receive(rapid.SampledFrom(late).Draw(t, "which"))
			},
			"reply": func(t *rapid.T) {
				if len(x.replies) == 0 {
					return
				}
				i := rapid.IntRange(0, len(x.replies)-1).Draw(t, "which")
				r := x.replies[i]
				if rapid.Bool().Draw(t, "arrives") {
					x.answered(r)
				}
				if rapid.Bool().Draw(t, "is gone") {
					x.replies = slices.Delete(x.replies, i, i+1)
				}
			},
			"the receiver changes its decision": func(*rapid.T) { x.accepts = !x.accepts },
			"the sender crashes":                func(*rapid.T) { x.restartSender() },
			"the receiver crashes":              func(*rapid.T) { x.restartReceiver() },
		})
		x.settle(t)
		x.audit(t)
		x.accepts = true
		for _, p := range late { // messages that arrive after all deliveries have ended
			x.receive(p)
		}
		x.settle(t)
		x.audit(t)
	})
}
