// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/transport"
)

func operatorChecks() []check {
	return []check{
		{"OperatorNamed", "a request reaches the node with the name and carries the name of the operator; the operator receives the answer", func(f *fixture) {
			f.serve("a.example:1", echo("a"))
			f.serve("b", echo("b"))
			ops, dev := f.operator("ops.example"), f.operator("dev")
			for range 3 {
				for _, test := range []struct {
					asker    transport.AdminClient
					to, want string
				}{
					{ops, "a.example:1", "a to ops.example: x"},
					{ops, "b", "b to ops.example: x"},
					{dev, "a.example:1", "a to dev: x"},
				} {
					if got, err := test.asker.Ask(f.ctx, "test", transport.AdminRead, test.to, []byte("x")); string(got) != test.want || err != nil {
						f.Errorf("Ask %s = %q, %v, want %q", test.to, got, err, test.want)
					}
				}
			}
		}},
		{"OperatorAny", "a request to any node reaches one that answers operators", func(f *fixture) {
			f.open("deaf", transport.Config{})
			f.serve("zoe", echo("zoe"))
			ops := f.operator("ops")
			for range 3 {
				if got, err := ops.Ask(f.ctx, "test", transport.AdminRead, "", nil); string(got) != "zoe to ops: " || err != nil {
					f.Errorf("Ask any = %q, %v", got, err)
				}
			}
		}},
		{"OperatorNamedOnly", "a node that serves only requests to its name receives no requests to any node", func(f *fixture) {
			a, _ := f.open("a", transport.Config{})
			f.must("HandleNamedAdmin", a.HandleNamedAdmin(echo("first")))
			ops := f.operator("ops")
			if got, err := ops.Ask(f.ctx, "test", transport.AdminRead, "a", nil); string(got) != "first to ops: " || err != nil {
				f.Errorf("Ask a = %q, %v", got, err)
			}
			f.want(transport.ErrNoNode, "Ask any")(ops.Ask(f.ctx, "test", transport.AdminRead, "", nil))
			f.must("HandleAdmin", a.HandleAdmin(echo("second")))
			for _, to := range []string{"a", ""} {
				if got, err := ops.Ask(f.ctx, "test", transport.AdminRead, to, nil); string(got) != "second to ops: " || err != nil {
					f.Errorf("Ask %q = %q, %v", to, got, err)
				}
			}
		}},
		{"OperatorRights", "the right and the service of a request reach the node", func(f *fixture) {
			f.serve("a", func(_ context.Context, _, service string, right transport.AdminRight, _ []byte) []byte {
				return []byte(service + " " + right.String())
			})
			ops := f.operator("ops")
			for _, to := range []string{"a", ""} {
				for _, right := range []transport.AdminRight{transport.AdminRead, transport.AdminAct} {
					for _, service := range []string{"test", "other.service"} {
						if got, err := ops.Ask(f.ctx, service, right, to, nil); string(got) != service+" "+right.String() || err != nil {
							f.Errorf("Ask the service %s with the right to %v = %q, %v", service, right, got, err)
						}
					}
				}
			}
		}},
		{"OperatorNobody", "without a node the error matches ErrNoNode", func(f *fixture) {
			ops := f.operator("ops")
			f.want(transport.ErrNoNode, "Ask any")(ops.Ask(f.ctx, "test", transport.AdminRead, "", nil))
			f.serve("a", echo("a"))
			f.want(transport.ErrNoNode, "Ask nobody")(ops.Ask(f.ctx, "test", transport.AdminRead, "nobody", nil))
		}},
		{"OperatorErrors", "the error of a node reaches the operator", func(f *fixture) {
			a := f.serve("a", func(context.Context, string, string, transport.AdminRight, []byte) []byte { panic("no") })
			ops := f.operator("ops")
			f.want(transport.ErrHandlerFailed, "Ask")(ops.Ask(f.ctx, "test", transport.AdminRead, "a", nil))
			f.check("HandleAdmin", a.HandleAdmin(nil))
			f.want(transport.ErrNoHandler, "Ask")(ops.Ask(f.ctx, "test", transport.AdminRead, "a", nil))
			f.check("HandleAdmin", a.HandleAdmin(echo("a")))
			if got, err := ops.Ask(f.ctx, "test", transport.AdminRead, "a", nil); string(got) != "a to ops: " || err != nil {
				f.Errorf("Ask = %q, %v", got, err)
			}
		}},
		{"OperatorBounds", "sizes, running and queued requests are limited", func(f *fixture) {
			const most, run, wait = 1 << 20, 4, 16 // of one operator
			sizes := f.serve("sizes", func(_ context.Context, _, _ string, _ transport.AdminRight, request []byte) []byte {
				return make([]byte, most+len(request)-transport.MaxAdminRequest+1)
			})
			ops := f.operator("ops")
			request := make([]byte, transport.MaxAdminRequest+1)
			f.want(transport.ErrTooLarge, fmt.Sprintf("a request of %d bytes", len(request)))(ops.Ask(f.ctx, "test", transport.AdminRead, "sizes", request))
			if _, err := ops.Ask(f.ctx, "test", transport.AdminRead, "sizes", request[2:]); err != nil {
				f.Errorf("an answer of %d bytes: %v", most, err)
			}
			f.want(transport.ErrTooLarge, fmt.Sprintf("an answer of %d bytes", most+1))(ops.Ask(f.ctx, "test", transport.AdminRead, "sizes", request[1:]))
			if n := sizes.Stats().AdminRequests; n < 2 {
				f.Errorf("%d requests were counted", n)
			}

			release := make(chan struct{})
			var running mailbox[int]
			b := f.serve("b", func(ctx context.Context, _, _ string, _ transport.AdminRight, _ []byte) []byte {
				running.put(1)
				block(ctx, release)
				return []byte("done")
			})
			var wg sync.WaitGroup
			for range run + wait {
				wg.Go(func() {
					if got, err := ops.Ask(f.ctx, "test", transport.AdminRead, "b", nil); string(got) != "done" || err != nil {
						f.Errorf("Ask = %q, %v", got, err)
					}
				})
			}
			f.until("all requests are accepted", func() bool { return b.Stats().AdminRequests == run+wait })
			running.wait(f, run)
			wg.Go(func() {
				f.want(transport.ErrBackpressure, "one request more")(ops.Ask(f.ctx, "test", transport.AdminRead, "b", nil))
			})
			f.until("the last request is rejected", func() bool { return b.Stats().AdminRequests == run+wait+1 })
			if n := running.len(); n != run {
				f.Errorf("%d requests ran at a time, want %d", n, run)
			}
			if n := b.Stats().AdminRefused; n != 1 {
				f.Errorf("%d requests were counted as refused, want 1", n)
			}
			close(release)
			wg.Wait()
		}},
		{"OperatorSlots", "an operator with slow reads delays neither other operators nor actions", func(f *fixture) {
			const run, wait = 4, 16
			release := make(chan struct{})
			var running mailbox[int]
			a := f.serve("a", func(ctx context.Context, _, _ string, _ transport.AdminRight, request []byte) []byte {
				if string(request) == "slow" {
					running.put(1)
					block(ctx, release)
				}
				return []byte("done")
			})
			slow, other := f.operator("slow"), f.operator("other")
			var wg sync.WaitGroup
			for range run + wait {
				wg.Go(func() {
					if got, err := slow.Ask(f.ctx, "test", transport.AdminRead, "a", []byte("slow")); string(got) != "done" || err != nil {
						f.Errorf("slow read = %q, %v", got, err)
					}
				})
			}
			f.until("all slow reads are accepted", func() bool { return a.Stats().AdminRequests == run+wait })
			running.wait(f, run)
			ctx, cancel := context.WithTimeout(f.ctx, slotsTimeout)
			defer cancel()
			for _, test := range []struct {
				operator string
				asker    transport.AdminClient
				right    transport.AdminRight
			}{{"another", other, transport.AdminRead}, {"another", other, transport.AdminAct}, {"the same", slow, transport.AdminAct}} {
				if got, err := test.asker.Ask(ctx, "test", test.right, "a", nil); string(got) != "done" || err != nil {
					f.Errorf("%v by %s operator during slow reads = %q, %v", test.right, test.operator, got, err)
				}
			}
			if n := running.len(); n != run {
				f.Errorf("%d slow reads ran at a time, want %d", n, run)
			}
			close(release)
			wg.Wait()
		}},
		{"OperatorContext", "a request ends with its context", func(f *fixture) {
			entered := make(chan struct{})
			f.serve("a", func(ctx context.Context, _, _ string, _ transport.AdminRight, _ []byte) []byte {
				close(entered)
				<-ctx.Done()
				return nil
			})
			ops := f.operator("ops")
			f.endsWithContext("Ask", entered, func(ctx context.Context) error {
				_, err := ops.Ask(ctx, "test", transport.AdminRead, "a", nil)
				return err
			})
		}},
		{"OperatorClose", "Close ends the context of a handler and waits for it", func(f *fixture) {
			entered, returned := make(chan struct{}), make(chan struct{})
			a := f.serve("a", func(ctx context.Context, _, _ string, _ transport.AdminRight, _ []byte) []byte {
				close(entered)
				block(f.ctx, ctx.Done()) //nolint:contextcheck // f.ctx bounds the wait for the end of ctx
				close(returned)
				return nil
			})
			ops := f.operator("ops")
			ctx, cancel := context.WithCancel(f.ctx)
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			wg.Go(func() { _, _ = ops.Ask(ctx, "test", transport.AdminRead, "a", nil) })
			<-entered
			f.check("Close", a.Close())
			select {
			case <-returned:
			default:
				f.Error("Close returned before the handler")
			}
			patience := 100 * time.Millisecond
			f.until("no node answers", func() bool {
				ctx, cancel := context.WithTimeout(f.ctx, patience) // requests to the closing node are lost
				defer cancel()
				patience *= 2
				got, err := ops.Ask(ctx, "test", transport.AdminRead, "a", nil)
				if err == nil {
					f.Fatalf("after Close the node answered %q", got)
				}
				return errors.Is(err, transport.ErrNoNode)
			})
		}},
	}
}

// slotsTimeout limits the requests that must not wait for slow ones.
const slotsTimeout = time.Minute

func (f *fixture) serve(name string, h transport.AdminHandler) endpoint {
	f.Helper()
	t, _ := f.open(name, transport.Config{})
	f.must("HandleAdmin", t.HandleAdmin(h))
	return t
}

// echo returns a handler that answers with its name, the operator and the request.
func echo(name string) transport.AdminHandler {
	return func(_ context.Context, operator, _ string, _ transport.AdminRight, request []byte) []byte {
		return fmt.Appendf(nil, "%s to %s: %s", name, operator, request)
	}
}

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
