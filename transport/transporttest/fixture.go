// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/transport"
)

const (
	kindA transport.Kind = transport.FirstUserKind + iota
	kindB
)

type fixture struct {
	testing.TB
	cfg     Config
	ctx     context.Context //nolint:containedctx // as in testing.T, for one check
	network Network
	connect func(operator string) transport.AdminClient // for the checks of operators
}

func (f *fixture) node(name string) identity.Node {
	f.Helper()
	n, err := identity.New(name)
	if err != nil {
		f.Fatal(err)
	}
	return n
}

func (f *fixture) open(name string, cfg transport.Config) (endpoint, *Faulty) {
	f.Helper()
	faulty := NewFaulty(f.network(f.node(name)))
	if cfg.CompressAbove == 0 {
		cfg.CompressAbove = -1 // frames have the size of their payload
	}
	t, err := transport.Open(faulty, cfg)
	if err != nil {
		f.Fatalf("Open: %v", err)
	}
	f.Cleanup(func() {
		f.check("Close", t.Close())
	})
	if f.cfg.wrap != nil {
		return f.cfg.wrap(t), faulty
	}
	return t, faulty
}

// pair returns the transports a and b.
func (f *fixture) pair() (a, b endpoint) {
	f.Helper()
	a, _ = f.open("a", transport.Config{})
	b, _ = f.open("b", transport.Config{})
	return a, b
}

func (f *fixture) operator(name string) transport.AdminClient {
	f.Helper()
	asker := f.connect(name)
	f.Cleanup(func() {
		f.check("Close of an operator", asker.Close())
	})
	if f.cfg.asker != nil {
		return f.cfg.asker(asker)
	}
	return asker
}

// must ends the check if err, the error of a call, is not nil.
func (f *fixture) must(call string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", call, err)
	}
}

func (f *fixture) check(call string, err error) {
	f.Helper()
	if err != nil {
		f.Errorf("%s: %v", call, err)
	}
}

// want returns a function that takes the results of a call and reports an error that does not match
// the wanted one.
func (f *fixture) want(want error, call string) func(any, error) {
	return func(got any, err error) {
		f.Helper()
		if !errors.Is(err, want) {
			f.Errorf("%s = %q, %v, want %v", call, got, err, want)
		}
	}
}

func block(ctx context.Context, closed <-chan struct{}) {
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// collect returns a mailbox with the messages of kindA that an endpoint handles.
func collect(of endpoint) *mailbox[transport.Message] {
	var m mailbox[transport.Message]
	of.Handle(kindA, m.handler())
	return &m
}

// endsWithContext checks that a call that was entered returns when its context is canceled.
func (f *fixture) endsWithContext(name string, entered <-chan struct{}, call func(ctx context.Context) error) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	block(f.ctx, entered)
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			f.Errorf("%s: %v, want context.Canceled", name, err)
		}
	case <-f.ctx.Done():
		f.Fatalf("%s did not return after its context was canceled", name)
	}
}

func (f *fixture) until(subject string, holds func() bool) {
	f.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-f.ctx.Done():
			f.Fatalf("timeout: %s", subject)
		}
	}
}

// mailbox stores the messages of a handler or the frames of a carrier.
type mailbox[M any] struct {
	mu  sync.Mutex
	got []M
}

func (m *mailbox[M]) put(msg M) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got = append(m.got, msg)
}

func (m *mailbox[M]) all() []M {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]M(nil), m.got...)
}

// wait returns the stored messages once there are n.
func (m *mailbox[M]) wait(f *fixture, n int) []M {
	f.Helper()
	f.until("enough messages arrive", func() bool { return m.len() >= n })
	return m.all()
}

func (m *mailbox[M]) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.got)
}

func (m *mailbox[M]) handler() func(context.Context, M) {
	return func(_ context.Context, msg M) { m.put(msg) }
}

type frame struct {
	lane transport.Lane
	from string
	data string
}

// raw is a node that uses a carrier directly.
type raw struct {
	f       *fixture
	carrier transport.Carrier
	mailbox[frame]
}

func (f *fixture) raw(self identity.Node) *raw {
	f.Helper()
	r := &raw{f: f, carrier: f.network(self)}
	f.must("Start", r.carrier.Start(r))
	f.Cleanup(func() { _ = r.carrier.Close() })
	return r
}

// Receive implements transport.Receiver.
func (r *raw) Receive(lane transport.Lane, from string, data []byte) {
	r.put(frame{lane: lane, from: from, data: string(data)})
}

// Connection implements transport.Receiver.
func (r *raw) Connection(err error) {
	if err != nil {
		r.f.Errorf("the carrier is disconnected: %v", err)
	}
}

func (r *raw) send(lane transport.Lane, to identity.Node, data string) {
	r.f.Helper()
	if err := r.carrier.Send(lane, to, []byte(data)); err != nil {
		r.f.Errorf("Send of %d bytes to %v on lane %v: %v", len(data), to, lane, err)
	}
}

// forge sends a message whose frame names a chosen sender.
func (r *raw) forge(as, to identity.Node, lane transport.Lane, msg link.Message) {
	r.f.Helper()
	m, err := link.New(link.Config{Self: as, MaxFrame: 1 << 20})
	if err != nil {
		r.f.Fatal(err)
	}
	if err := m.Send(to, link.Lane(lane), msg); err != nil {
		r.f.Fatal(err)
	}
	_, data, _ := m.Flush(0, link.Lane(lane), nil)
	r.send(lane, to, string(data))
}

func requestChecks() []check {
	return []check{
		{"RequestReply", "concurrent requests get their own replies", func(f *fixture) {
			a, b := f.pair()
			b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) {
				f.check("Reply", r.Reply(bytes.ToUpper(r.Payload)))
			})
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					for k := range 20 {
						payload := fmt.Sprintf("request %d/%d", i, k)
						got, err := a.Request(f.ctx, b.Self(), kindA, []byte(payload))
						if err != nil || string(got) != fmt.Sprintf("REQUEST %d/%d", i, k) {
							f.Errorf("Request(%q) = %q, %v", payload, got, err)
							return
						}
					}
				})
			}
			wg.Wait()
			if n := a.Stats().Requests; n != 0 {
				f.Errorf("%d requests are still open at the end, want 0", n)
			}
		}},
		{"RequestContext", "a request ends with its context", func(f *fixture) {
			a, b := f.pair()
			entered := make(chan struct{}) // stays closed for the second request, which enters no handler
			enter := sync.OnceFunc(func() { close(entered) })
			b.HandleRequest(kindA, func(context.Context, *transport.Request) { enter() })
			for _, to := range []identity.Node{b.Self(), f.node("nobody")} {
				f.endsWithContext(fmt.Sprintf("Request to %v", to), entered, func(ctx context.Context) error {
					_, err := a.Request(ctx, to, kindA, nil)
					return err
				})
			}
		}},
		{"RequestNoHandler", "a request without a handler fails soon", func(f *fixture) {
			a, b := f.pair()
			b.Handle(kindA, func(context.Context, transport.Message) {})
			f.want(transport.ErrNoHandler, "Request")(a.Request(f.ctx, b.Self(), kindA, nil))
		}},
		{"RequestLater", "a request can be answered after its handler has returned", func(f *fixture) {
			a, b := f.pair()
			var wg sync.WaitGroup
			defer wg.Wait()
			returned := make(chan struct{})
			b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) {
				wg.Go(func() {
					<-returned // by the next message on the lane
					f.check("Reply", r.Reply([]byte("later")))
				})
			})
			b.Handle(kindB, func(context.Context, transport.Message) { close(returned) })
			wg.Go(func() {
				f.until("the request is sent", func() bool { return a.Stats().Lanes[transport.Data].FramesOut > 0 })
				f.check("Send", a.Send(b.Self(), transport.Data, kindB, nil))
			})
			if got, err := a.Request(f.ctx, b.Self(), kindA, nil); err != nil || string(got) != "later" {
				f.Errorf("Request = %q, %v", got, err)
			}
		}},
	}
}
