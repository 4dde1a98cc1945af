// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

func carrierChecks() []check {
	return []check{
		{"CarrierDelivers", "a frame arrives unchanged on its lane, with the name of the sender", func(f *fixture) {
			a, b := f.raw(f.node("a.example:1")), f.raw(f.node("b.example:1"))
			for i, lane := range lanes() {
				a.send(lane, b.carrier.Self(), fmt.Sprint("hello ", lane))
				want := frame{lane: lane, from: "a.example:1", data: fmt.Sprint("hello ", lane)}
				if got := b.wait(f, i+1)[i]; got != want {
					f.Errorf("%q from %s on %v arrived, want %q from %s on %v", got.data, got.from, got.lane, want.data, want.from, want.lane)
				}
			}
			if got := a.carrier.Self(); got.Name != "a.example:1" || got.UID == 0 {
				f.Errorf("Self = %v", got)
			}
		}},
		{"CarrierSizes", "frames of all sizes up to MaxFrame arrive, larger ones are rejected", func(f *fixture) {
			a, b := f.raw(f.node("a")), f.raw(f.node("b"))
			most := a.carrier.MaxFrame()
			if most < transport.MinFrame {
				f.Fatalf("MaxFrame = %d", most)
			}
			for i, size := range []int{1, 2, 1000, 4096, most - 1, most} {
				data := strings.Repeat(string(rune('a'+i)), size)
				a.send(transport.Bulk, b.carrier.Self(), data)
				if got := b.wait(f, i+1)[i]; got.data != data {
					f.Errorf("%d bytes arrived, want %d", len(got.data), size)
				}
			}
			if err := a.carrier.Send(transport.Bulk, b.carrier.Self(), make([]byte, most+1)); err == nil {
				f.Errorf("Send accepted a frame of %d bytes, MaxFrame is %d", most+1, most)
			}
		}},
		{"CarrierOrder", "frames of one sender on one lane arrive in order", func(f *fixture) {
			const each = 2000
			a, b := f.raw(f.node("a")), f.raw(f.node("b"))
			var wg sync.WaitGroup
			for _, lane := range lanes() {
				wg.Go(func() {
					for i := range each {
						a.send(lane, b.carrier.Self(), fmt.Sprint(i))
					}
				})
			}
			wg.Wait()
			next := make(map[transport.Lane]int)
			for _, got := range b.wait(f, each*len(lanes())) {
				if got.data != fmt.Sprint(next[got.lane]) {
					f.Errorf("frame %s arrived on %v, want %d", got.data, got.lane, next[got.lane])
					return
				}
				next[got.lane]++
			}
		}},
		{"CarrierBuffer", "the sender may reuse a frame after Send, and the receiver owns its copy", func(f *fixture) {
			a := f.raw(f.node("a"))
			first, second := f.node("b"), identity.Node{Name: "b", UID: 2}
			var boxes []*raw
			for _, self := range []identity.Node{first, second} {
				r := &raw{f: f, carrier: f.network(self)}
				f.must("Start", r.carrier.Start(owner{r}))
				f.Cleanup(func() { _ = r.carrier.Close() })
				boxes = append(boxes, r)
			}
			buf := make([]byte, 100)
			for i := range byte(100) {
				for k := range buf {
					buf[k] = i
				}
				f.check("Send", a.carrier.Send(transport.Control, identity.Node{Name: "b"}, buf))
				clear(buf)
			}
			for _, r := range boxes {
				for i, got := range r.wait(f, 100) {
					if want := strings.Repeat(string([]byte{byte(i)}), 100); got.data != want {
						f.Errorf("frame %d arrived as %.10q", i, got.data)
						return
					}
				}
			}
		}},
		{"CarrierIncarnations", "a frame for an incarnation reaches no other node", func(f *fixture) {
			a := f.raw(f.node("a"))
			b1, b2 := f.raw(identity.Node{Name: "b", UID: 1}), f.raw(identity.Node{Name: "b", UID: 1 << 63})
			others := []*raw{f.raw(f.node("bb")), f.raw(f.node("b.b")), f.raw(f.node("B")), a}
			for i := range 10 {
				a.send(lanes()[i%3], b1.carrier.Self(), "one")
				a.send(lanes()[i%3], b2.carrier.Self(), "two")
			}
			for r, want := range map[*raw]string{b1: "one", b2: "two"} {
				for _, got := range r.wait(f, 10) {
					if got.data != want {
						f.Errorf("%q arrived at %v", got.data, r.carrier.Self())
					}
				}
			}
			for i, r := range append(others, b1, b2) {
				want := 0
				if i >= len(others) {
					want = 10
				}
				if n := len(r.all()); n != want {
					f.Errorf("%d frames arrived at %v, want %d", n, r.carrier.Self(), want)
				}
			}
		}},
		{"CarrierNames", "a frame for a bare name reaches the nodes with that name only", func(f *fixture) {
			a := f.raw(f.node("a"))
			names := []string{"b", "b.b", "b-b", "b_b", "b:b", "B", "b:1", strings.Repeat("x", 128)}
			nodes := make([]*raw, len(names))
			for i, name := range names {
				nodes[i] = f.raw(f.node(name))
			}
			for _, name := range names {
				a.send(transport.Control, identity.Node{Name: name}, "to "+name)
			}
			for i, name := range names {
				want := frame{lane: transport.Control, from: "a", data: "to " + name}
				if got := nodes[i].wait(f, 1); !slices.Equal(got, []frame{want}) {
					f.Errorf("%v arrived at %s", got, name)
				}
			}
			if got := a.all(); len(got) != 0 {
				f.Errorf("%v arrived at the sender", got)
			}
		}},
		{"CarrierSelf", "a node can send to itself", func(f *fixture) {
			a := f.raw(f.node("a"))
			for i, lane := range lanes() {
				a.send(lane, a.carrier.Self(), "echo")
				if got := a.wait(f, i+1)[i]; got != (frame{lane: lane, from: "a", data: "echo"}) {
					f.Errorf("%v", got)
				}
			}
		}},
		{"CarrierNobody", "sending to an unknown node is not an error", func(f *fixture) {
			a := f.raw(f.node("a"))
			a.send(transport.Data, f.node("nobody"), "x")
			a.send(transport.Control, identity.Node{Name: "nobody"}, "x")
		}},
		{"CarrierClose", "after Close nothing is sent or received", func(f *fixture) {
			a, b := f.raw(f.node("a")), f.raw(f.node("b"))
			a.send(transport.Data, b.carrier.Self(), "1")
			b.wait(f, 1)
			f.check("Close", errors.Join(b.carrier.Close(), b.carrier.Close()))
			if err := b.carrier.Send(transport.Data, a.carrier.Self(), []byte("x")); err == nil {
				f.Error("Send after Close returned no error")
			}
			if err := b.carrier.Start(b); err == nil {
				f.Error("Start after Close returned no error")
			}
			a.send(transport.Data, b.carrier.Self(), "2")
			a.send(transport.Data, a.carrier.Self(), "after Close")
			a.wait(f, 1)
			if n := len(b.all()); n != 1 {
				f.Errorf("received %d frames, want only the one before Close", n)
			}
		}},
		{"CarrierCloseUnderLoad", "after Close the receiver is not called", func(f *fixture) {
			const most = 1000 // frames in flight
			a := f.raw(f.node("a"))
			for range 10 {
				w := new(watcher)
				b := f.network(f.node("b"))
				f.must("Start", b.Start(w))
				var stop atomic.Bool
				var sent atomic.Int64
				var wg sync.WaitGroup
				for _, lane := range lanes() {
					wg.Go(func() {
						for !stop.Load() {
							if sent.Load()-w.calls.Load() > most { // limits the queue before the last frame
								runtime.Gosched()
								continue
							}
							sent.Add(1)
							a.send(lane, b.Self(), "x")
						}
					})
				}
				f.until("a frame arrives", func() bool { return w.calls.Load() > 10 })
				f.check("Close", b.Close())
				w.closed.Store(1)
				before := w.calls.Load()
				for range 100 {
					a.send(transport.Data, b.Self(), "late")
				}
				stop.Store(true)
				wg.Wait()
				n := len(a.all())
				a.send(transport.Data, a.carrier.Self(), "after Close")
				a.wait(f, n+1)
				if w.late.Load() > 0 || w.calls.Load() != before {
					f.Errorf("the receiver was called %d times after Close", w.calls.Load()-before)
				}
			}
		}},
	}
}

func lanes() []transport.Lane {
	return []transport.Lane{transport.Control, transport.Data, transport.Bulk}
}

// owner modifies received frames, as a receiver may.
type owner struct{ *raw }

// Receive implements transport.Receiver.
func (o owner) Receive(lane transport.Lane, from string, data []byte) {
	o.raw.Receive(lane, from, data)
	clear(data)
}

// watcher counts calls after Close.
type watcher struct {
	closed, late, calls atomic.Int64
}

// Receive implements transport.Receiver.
func (w *watcher) Receive(transport.Lane, string, []byte) {
	w.calls.Add(1)
	w.late.Add(w.closed.Load())
}

// Connection implements transport.Receiver.
func (w *watcher) Connection(error) { w.late.Add(w.closed.Load()) }

func closeChecks() []check {
	return []check{
		{"CloseWaits", "Close ends the contexts of handlers and waits for them", func(f *fixture) {
			a, b := f.pair()
			entered := make(chan struct{})
			var returned atomic.Bool
			b.Handle(kindA, func(ctx context.Context, _ transport.Message) {
				close(entered)
				block(f.ctx, ctx.Done()) //nolint:contextcheck // f.ctx bounds the wait for the end of ctx
				returned.Store(true)
			})
			f.must("Send", a.Send(b.Self(), transport.Data, kindA, nil))
			<-entered
			f.check("Close", b.Close())
			if !returned.Load() {
				f.Error("Close returned before the handler")
			}
			if err := b.Send(a.Self(), transport.Data, kindA, nil); !errors.Is(err, transport.ErrClosed) {
				f.Errorf("Send after Close: %v, want ErrClosed", err)
			}
		}},
		{"CloseUnderLoad", "Close returns under load, requests fail, nothing is handled afterwards", func(f *fixture) {
			a, b := f.pair()
			var closed, late, handled atomic.Int64
			b.Handle(kindA, func(context.Context, transport.Message) {
				handled.Add(1)
				late.Add(closed.Load())
			})
			b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) { _ = r.Reply(nil) })
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for f.ctx.Err() == nil {
						if _, err := b.Request(f.ctx, b.Self(), kindA, nil); errors.Is(err, transport.ErrClosed) {
							return
						}
					}
					f.Error("no request failed after Close")
				})
				wg.Go(func() {
					for f.ctx.Err() == nil && closed.Load() == 0 {
						for _, lane := range lanes() {
							_ = a.Send(b.Self(), lane, kindA, make([]byte, 100))
						}
					}
				})
			}
			f.until("more than 100 messages are handled", func() bool { return handled.Load() > 100 })
			f.check("Close", b.Close())
			closed.Store(1)
			wg.Wait()
			if n := late.Load(); n > 0 {
				f.Errorf("%d messages were handled after Close", n)
			}
		}},
	}
}
