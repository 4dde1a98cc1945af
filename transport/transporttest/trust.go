// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"errors"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/transport"
)

func trustChecks() []check {
	return []check{
		{"TrustForged", "a frame whose header names another sender than the carrier authenticated is dropped and counted", func(f *fixture) {
			b, _ := f.open("b", transport.Config{})
			var box mailbox[transport.Message]
			b.Handle(kindA, box.handler())
			b.HandleNamed(kindA, box.handler())
			alice, mallory := f.node("alice"), f.raw(f.node("mallory"))
			for _, to := range []identity.Node{b.Self(), {Name: "b"}} {
				n, dropped := len(box.all()), b.Stats().Dropped[transport.DropForged]
				mallory.forge(alice, to, transport.Control, tell("forged"))
				f.until("a forged frame is counted", func() bool { return b.Stats().Dropped[transport.DropForged] > dropped || len(box.all()) > n })
				mallory.forge(mallory.carrier.Self(), to, transport.Control, tell("honest"))
				if got := box.wait(f, n+1)[n]; string(got.Payload) != "honest" || got.From != mallory.carrier.Self() {
					f.Errorf("a message with a forged sender was handled: %q from %v", got.Payload, got.From)
				}
			}
			if n := b.Stats().Dropped[transport.DropForged]; n != 2 {
				f.Errorf("%d forged frames were counted, want 2", n)
			}
		}},
		{"TrustNames", "the handlers of the bare name receive exactly the messages to the bare name", func(f *fixture) {
			a, b := f.pair()
			var known, named mailbox[transport.Message]
			b.Handle(kindA, known.handler())
			b.HandleNamed(kindB, named.handler())
			for _, kind := range []transport.Kind{kindA, kindB} {
				f.must("SendToName", a.SendToName("b", kind, []byte("to the name")))
				f.must("Send", a.Send(b.Self(), transport.Control, kind, []byte("to the incarnation")))
			}
			if got := named.wait(f, 1)[0]; string(got.Payload) != "to the name" || got.From != a.Self() || got.Kind != kindB {
				f.Errorf("the handler for names received %q from %v", got.Payload, got.From)
			}
			if got := known.wait(f, 1)[0]; string(got.Payload) != "to the incarnation" || got.Kind != kindA {
				f.Errorf("the handler for the incarnation received %q", got.Payload)
			}
			f.until("the other messages are counted", func() bool {
				return b.Stats().Dropped[transport.DropNoHandler] == 2 || len(named.all())+len(known.all()) > 2
			})
			if len(named.all()) != 1 || len(known.all()) != 1 {
				f.Errorf("handled %d messages to the name and %d to the incarnation, want one each", len(named.all()), len(known.all()))
			}
		}},
		{"TrustQuarantine", "messages of a quarantined incarnation are dropped and cause a notice; messages of another incarnation of the name are handled", func(f *fixture) {
			var events mailbox[transport.Event]
			a, _ := f.open("a", transport.Config{OnEvent: events.put})
			b, _ := f.open("b", transport.Config{})
			box := collect(b)
			f.must("Send", a.Send(b.Self(), transport.Data, kindA, []byte("1")))
			box.wait(f, 1)
			b.Quarantine(a.Self(), false)
			if err := b.Send(a.Self(), transport.Data, kindA, nil); !errors.Is(err, transport.ErrQuarantined) {
				f.Errorf("Send to a quarantined incarnation: %v, want ErrQuarantined", err)
			}
			f.must("Send", a.Send(b.Self(), transport.Data, kindA, []byte("2")))
			f.until("the sender is notified", func() bool { return len(events.all()) > 0 || len(box.all()) > 1 })
			if got := events.all(); len(got) != 1 || got[0] != (transport.QuarantinedBy{From: b.Self()}) {
				f.Errorf("the sender's events are %v", got)
			}
			next, _ := f.open("a", transport.Config{})
			f.must("Send", next.Send(b.Self(), transport.Data, kindA, []byte("3")))
			if got := box.wait(f, 2); string(got[1].Payload) != "3" || len(got) != 2 {
				f.Errorf("handled %d messages, want 1; the second is %q", len(got), got[1].Payload)
			}
		}},
	}
}

func tell(payload string) link.Message {
	return link.Message{Type: link.Tell, Kind: link.Kind(kindA), Payload: []byte(payload)}
}
