// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/s2"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

func TestOrderOnEachLane(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	box := newMailbox()
	b.Handle(kindA, box.handle)
	const each = 1000
	var wg sync.WaitGroup
	for _, lane := range []transport.Lane{transport.Control, transport.Data, transport.Bulk} {
		wg.Go(func() {
			for i := range each {
				send(t, a, b, lane, fmt.Sprint(i))
			}
		})
	}
	wg.Wait()
	next := map[transport.Lane]int{}
	for _, m := range box.wait(t, 3*each) {
		if m.From != a.Self() || string(m.Payload) != fmt.Sprint(next[m.Lane]) {
			t.Fatalf("handled message %s from %v on %v, want %d", m.Payload, m.From, m.Lane, next[m.Lane])
		}
		next[m.Lane]++
	}
	if n := b.Stats().Lanes[transport.Data].MessagesIn; n != each {
		t.Errorf("%d messages were counted, want %d", n, each)
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	box := newMailbox()
	b.Handle(kindA, box.handle)
	b.HandleRequest(kindB, func(_ context.Context, r *transport.Request) { _ = r.Reply(r.Payload) })
	text := strings.Repeat("all work and no play ", 10_000)
	send(t, a, b, transport.Bulk, text)
	if got := box.wait(t, 1); string(got[0].Payload) != text {
		t.Errorf("%d bytes arrived, want the uncompressed text of %d bytes", len(got[0].Payload), len(text))
	}
	if s := a.Stats(); s.Lanes[transport.Bulk].BytesOut > uint64(len(text)/4) || s.Saved == 0 {
		t.Errorf("sent %d bytes for a text of %d bytes and counted %d saved bytes, want at most a quarter and more than 0", s.Lanes[transport.Bulk].BytesOut, len(text), s.Saved)
	}
	if got, err := a.Request(t.Context(), b.Self(), kindB, []byte(text)); string(got) != text || err != nil {
		t.Errorf("the reply has %d bytes, %v, want the text of %d bytes", len(got), err, len(text))
	}
	noise := make([]byte, 100_000)
	_, _ = rand.Read(noise)
	saved := a.Stats().Saved
	send(t, a, b, transport.Bulk, string(noise))
	if got := box.wait(t, 2); string(got[1].Payload) != string(noise) || a.Stats().Saved != saved {
		t.Errorf("incompressible payload: %d bytes arrived and %d were saved, want %d and 0", len(got[1].Payload), a.Stats().Saved-saved, len(noise))
	}
}

// raw is a node without a transport: the test creates its frames.
type raw struct {
	carrier *inmem.Carrier
	frames  chan []byte
}

func (c *cluster) raw(node identity.Node) *raw {
	c.t.Helper()
	r := &raw{carrier: c.network.Carrier(node), frames: make(chan []byte, 100)}
	if err := r.carrier.Start(r); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = r.carrier.Close() })
	return r
}

func (r *raw) Receive(_ transport.Lane, _ string, frame []byte) {
	select {
	case r.frames <- frame:
	default:
	}
}
func (*raw) Connection(error) {}

// machine returns a link machine that creates frames for any sender.
func machine(t *testing.T, self identity.Node) *link.Machine {
	t.Helper()
	m, err := link.New(link.Config{Self: self, MaxFrame: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (r *raw) send(t *testing.T, m *link.Machine, to identity.Node, lane transport.Lane, msg link.Message) {
	t.Helper()
	if err := m.Send(to, link.Lane(lane), msg); err != nil {
		t.Fatal(err)
	}
	for {
		_, frame, ok := m.Flush(0, link.Lane(lane), nil)
		if !ok {
			return
		}
		if err := r.carrier.Send(lane, to, frame); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDecompressionLimit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := c.open("b", transport.Config{})
	box := newMailbox()
	b.Handle(kindA, box.handle)
	self := identity.Node{Name: "mallory", UID: 1}
	r, m := c.raw(self), machine(t, self)
	bomb := s2.Encode(nil, make([]byte, 2<<20))
	for _, payload := range [][]byte{bomb, []byte("garbage"), {}} {
		r.send(t, m, b.Self(), transport.Data, link.Message{Type: link.Tell, Kind: link.Kind(kindA), Compressed: true, Payload: payload})
	}
	r.send(t, m, b.Self(), transport.Data, link.Message{Type: link.Tell, Kind: link.Kind(kindA), Payload: []byte("honest")})
	if got := box.wait(t, 1); string(got[0].Payload) != "honest" {
		t.Errorf("handled a message of %d bytes, want only the honest one", len(got[0].Payload))
	}
	if n := b.Stats().Dropped[link.Undecompressed]; n != 3 {
		t.Errorf("%d messages were counted as undecompressed, want 3", n)
	}
}

func TestForgedFrames(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var log lockedBuilder
	b := c.open("b", transport.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	box := newMailbox()
	b.Handle(kindA, box.handle)
	self := identity.Node{Name: "mallory", UID: 1}
	r := c.raw(self)
	r.send(t, machine(t, identity.Node{Name: "alice", UID: 7}), b.Self(), transport.Control, link.Message{Type: link.Tell, Kind: link.Kind(kindA), Payload: []byte("forged")})
	r.send(t, machine(t, self), b.Self(), transport.Control, link.Message{Type: link.Tell, Kind: link.Kind(kindA), Payload: []byte("honest")})
	if got := box.wait(t, 1); string(got[0].Payload) != "honest" || got[0].From != self {
		t.Errorf("handled %s from %v, want honest from %v", got[0].Payload, got[0].From, self)
	}
	if n := b.Stats().Dropped[link.Forged]; n != 1 {
		t.Errorf("%d frames were counted as forged, want 1", n)
	}
	if s := log.String(); !strings.Contains(s, "reason=forged") || !strings.Contains(s, "from=mallory") {
		t.Errorf("the log is %q, want a frame from mallory dropped as forged", s)
	}
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestHandleNamed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	known, named := newMailbox(), newMailbox()
	b.Handle(kindA, known.handle)
	b.HandleNamed(kindB, named.handle)
	for _, kind := range []transport.Kind{kindA, kindB} {
		if err := a.SendToName("b", kind, []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	if got := named.wait(t, 1); got[0].From != a.Self() || got[0].Kind != kindB {
		t.Errorf("the handler for names received %+v, want kind %d from %v", got[0], kindB, a.Self())
	}
	if err := a.Send(b.Self(), transport.Control, kindB, nil); err != nil {
		t.Fatal(err)
	}
	send(t, a, b, transport.Control, "next")
	if got := known.wait(t, 1); string(got[0].Payload) != "next" || len(named.all()) != 1 {
		t.Errorf("handled %d messages to the incarnation and %d to the name, want one each", len(known.all()), len(named.all()))
	}
	if n := b.Stats().Dropped[link.NoHandler]; n != 2 {
		t.Errorf("%d messages were counted as without a handler, want 2", n)
	}
	for _, err := range []error{
		a.Send(identity.Node{Name: "b"}, transport.Control, kindB, nil), a.SendToName("b b", kindB, nil), a.SendToName("", kindB, nil),
	} {
		if !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("SendToName: %v, want ErrInvalid", err)
		}
	}
}

func TestPanickingHandler(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	box := newMailbox()
	b.Handle(kindA, func(ctx context.Context, m transport.Message) {
		if len(m.Payload) == 0 {
			panic("no payload")
		}
		box.handle(ctx, m)
	})
	send(t, a, b, transport.Data, "")
	send(t, a, b, transport.Data, "x")
	box.wait(t, 1)
	if n := b.Stats().Dropped[link.Panicked]; n != 1 {
		t.Errorf("%d panics were counted, want 1", n)
	}
}

// TestHandlerGoexit checks that the messages after one whose handler calls runtime.Goexit are handled, and
// that such a request fails.
func TestHandlerGoexit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	box := newMailbox()
	b.Handle(kindA, func(ctx context.Context, m transport.Message) {
		if len(m.Payload) == 0 {
			runtime.Goexit()
		}
		box.handle(ctx, m)
	})
	b.HandleRequest(kindB, func(context.Context, *transport.Request) { runtime.Goexit() })
	for range 3 {
		send(t, a, b, transport.Data, "")
		send(t, a, b, transport.Data, "x")
	}
	box.wait(t, 3)
	if _, err := a.Request(t.Context(), b.Self(), kindB, nil); !errors.Is(err, transport.ErrHandlerFailed) {
		t.Errorf("a request whose handler ends its goroutine: %v, want ErrHandlerFailed", err)
	}
	if n := b.Stats().Dropped[link.Panicked]; n != 4 {
		t.Errorf("%d messages were counted, want 4", n)
	}
}

func TestGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		events := make(chan transport.Event, 10)
		a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{OnEvent: func(e transport.Event) { events <- e }})
		box := newMailbox()
		b.Handle(kindA, box.handle)
		heal := c.network.CutOneWay([]string{"a"}, []string{"b"})
		send(t, a, b, transport.Bulk, "lost")
		synctest.Wait()
		heal()
		send(t, a, b, transport.Bulk, "x")
		synctest.Wait()
		if got := box.all(); len(got) != 1 {
			t.Errorf("%d messages arrived, want 1", len(got))
		}
		if want := (transport.Gap{From: a.Self(), Lane: transport.Bulk, Frames: 1}); len(events) != 1 || <-events != want {
			t.Errorf("OnEvent received other events than %+v, %d more are waiting", want, len(events))
		}
	})
}

func TestDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		events := make(chan transport.Event, 10)
		observe := func(e transport.Event) {
			events <- e
			panic("OnEvent") // does not stop the events
		}
		a, b := c.open("a", transport.Config{OnEvent: observe}), c.open("b", transport.Config{})
		cause := errors.New("cable unplugged")
		reconnect := c.network.Disconnect("a", cause)
		for _, err := range []error{a.Send(b.Self(), transport.Data, kindA, nil), a.Connected()} {
			if !errors.Is(err, transport.ErrDisconnected) || !errors.Is(err, cause) {
				t.Errorf("Send while disconnected: %v, want ErrDisconnected and %v", err, cause)
			}
		}
		if _, err := a.Request(t.Context(), b.Self(), kindA, nil); !errors.Is(err, transport.ErrDisconnected) {
			t.Errorf("Request while disconnected: %v, want ErrDisconnected", err)
		}
		reconnect()
		send(t, a, b, transport.Data, "x")
		synctest.Wait()
		if first, second := <-events, <-events; first != (transport.Connection{Err: cause}) || second != (transport.Connection{}) {
			t.Errorf("the events are %v, then %v, want the disconnection by %v and a connection", first, second, cause)
		}
		if a.Stats().Requests != 0 {
			t.Error("a failed request is still open")
		}
	})
}

func TestSlowOnEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	release := make(chan struct{})
	a := c.open("a", transport.Config{OnEvent: func(transport.Event) { <-release }})
	for range 2000 {
		c.network.Disconnect("a", errors.New("flapping"))()
	}
	if n := a.Stats().EventsLost; n < 1500 {
		t.Errorf("%d of 4,000 events were counted as lost, want at least 1,500", n)
	}
	if err := a.Connected(); err != nil {
		t.Error(err)
	}
	close(release)
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := identity.Node{Name: "a", UID: 1}
	if _, err := transport.Open(c.network.Carrier(node), transport.Config{MaxQueue: -1, MaxRequests: -1}); !errors.Is(err, transport.ErrInvalid) ||
		!strings.Contains(err.Error(), "MaxQueue") || !strings.Contains(err.Error(), "MaxRequests") {
		t.Errorf("Open with an invalid configuration: %v, want ErrInvalid with MaxQueue and MaxRequests", err)
	}
	first, err := transport.Open(c.network.Carrier(node), transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := transport.Open(c.network.Carrier(node), transport.Config{}); err == nil {
		t.Error("Open succeeded twice for one incarnation")
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Error(err)
	}
	if err := first.Send(identity.Node{Name: "b", UID: 1}, transport.Data, kindA, nil); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Send after Close: %v, want ErrClosed", err)
	}
	if _, err := first.Request(t.Context(), identity.Node{Name: "b", UID: 1}, kindA, nil); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Request after Close: %v, want ErrClosed", err)
	}
	if err := first.Flush(t.Context()); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Flush after Close: %v, want ErrClosed", err)
	}
}
