// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/transport"
)

// recorder is a singleton that records the messages it receives.
type recorder struct {
	mu  sync.Mutex
	got []string
}

func (p *recorder) run(ctx context.Context, inbox *cluster.Inbox) error {
	for {
		d, err := inbox.Receive(ctx)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.got = append(p.got, d.From.Name+string(d.Payload))
		if d.Asked() != (string(d.Payload) == "?") {
			p.got = append(p.got, "asked is wrong")
		}
		p.mu.Unlock()
		_ = d.Reply([]byte("!"))
	}
}

func (p *recorder) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.got...)
}

func proxyOf(w *world, n *cluster.Node, cfg cluster.ProxyConfig) *cluster.Proxy {
	w.Helper()
	p, err := n.Proxy(w.Context(), cfg)
	must(w.T, err)
	return p
}

// Messages sent before the singleton runs arrive in order, followed by later requests.
func TestProxyKeepsOrder(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		p := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "tape"})
		var sent []string
		for i := range 200 {
			text := string(binary.AppendUvarint([]byte("m"), uint64(i)))
			must(w.T, p.Send(w.Context(), []byte(text)))
			sent = append(sent, "b"+text)
		}
		asked := make(chan error, 1)
		go func() {
			_, err := p.Ask(w.Context(), []byte("?"))
			asked <- err
		}()
		time.Sleep(10 * time.Second)
		if host, runs, err := p.Host(w.Context()); host != nodes[0].Self() || runs || err != nil {
			w.Errorf("Host = %v, %t, %v, want %v, false, nil", host, runs, err, nodes[0].Self())
		}
		r := &recorder{}
		for _, n := range nodes {
			must(w.T, n.Singleton(w.Context(), cluster.Singleton{Name: "tape", Run: r.run}))
		}
		must(w.T, <-asked)
		got := r.all()
		if len(got) != len(sent)+1 || got[len(sent)] != "b?" {
			w.Fatalf("%d messages arrived and the last is %q, want all messages and \"b?\"", len(got), got[len(got)-1])
		}
		for i, text := range sent {
			if got[i] != text {
				w.Fatalf("message %d is %q, want %q", i, got[i], text)
			}
		}
		if _, runs, err := p.Host(w.Context()); !runs || err != nil {
			w.Errorf("Host reports no running instance: %v", err)
		}
	})
}

// A full buffer drops the oldest messages, and dropped requests fail. Without a buffer all messages
// are dropped.
func TestProxyDropsOldest(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var drops []cluster.Drop
		a := w.start("a", func(c *cluster.Config) {
			c.Observer.Dropped = func(d cluster.Drop) { drops = append(drops, d) }
		})
		w.allUp(a)
		p := proxyOf(w, a, cluster.ProxyConfig{Singleton: "tape", BufferSize: 2})
		asked := make(chan error, 1)
		go func() {
			_, err := p.Ask(w.Context(), []byte("?"))
			asked <- err
		}()
		synctest.Wait()
		for _, text := range []string{"1", "2", "3"} {
			must(w.T, p.Send(w.Context(), []byte(text)))
		}
		if err := <-asked; !errors.Is(err, cluster.ErrDropped) {
			w.Errorf("Ask that was dropped: %v, want ErrDropped", err)
		}
		r := &recorder{}
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "tape", Run: r.run}))
		w.sleep(5 * time.Second)
		if got := r.all(); len(got) != 2 || got[0] != "a2" || got[1] != "a3" {
			w.Errorf("the instance received %q, want [\"a2\" \"a3\"]", got)
		}
		if len(drops) != 2 || drops[0].Reason != cluster.DroppedBuffer || drops[0].Singleton != "tape" {
			w.Errorf("the observer received the drops %v, want two of singleton tape", drops)
		}
		none := proxyOf(w, a, cluster.ProxyConfig{Singleton: "none", BufferSize: -1})
		if err := none.Send(w.Context(), []byte("x")); !errors.Is(err, cluster.ErrDropped) {
			w.Errorf("Send without a buffer: %v, want ErrDropped", err)
		}
	})
}

// A cancelled request is removed from the buffer and releases its room. The instance never receives
// it.
func TestProxyCancelledRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		p := proxyOf(w, a, cluster.ProxyConfig{Singleton: "tape", BufferSize: 2})
		must(w.T, p.Send(w.Context(), []byte("1")))
		for range 2 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			if _, err := p.Ask(ctx, []byte("?")); !errors.Is(err, cluster.ErrNotHosted) || !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("Ask: %v, want ErrNotHosted and context.DeadlineExceeded", err)
			}
			cancel()
		}
		must(w.T, p.Send(w.Context(), []byte("2")))
		r := &recorder{}
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "tape", Run: r.run}))
		w.sleep(5 * time.Second)
		if got := r.all(); len(got) != 2 || got[0] != "a1" || got[1] != "a2" {
			w.Errorf("the instance received %q, want [\"a1\" \"a2\"]", got)
		}
	})
}

// A request that fails because the node is suspended releases its room in the buffer.
func TestProxyOfSuspendedNode(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		p := proxyOf(w, nodes[0], cluster.ProxyConfig{Singleton: "tape", BufferSize: 2})
		must(w.T, p.Send(w.Context(), []byte("1")))
		asked := make(chan error, 1)
		go func() {
			_, err := p.Ask(w.Context(), []byte("?"))
			asked <- err
		}()
		synctest.Wait()
		backA, backB := w.network.Disconnect("a", errors.New("no broker")), w.network.Disconnect("b", errors.New("no broker"))
		if err := <-asked; !errors.Is(err, cluster.ErrDisconnected) {
			w.Errorf("Ask: %v, want ErrDisconnected", err)
		}
		must(w.T, p.Send(w.Context(), []byte("2")))
		backA()
		backB()
		r := &recorder{}
		for _, n := range nodes {
			must(w.T, n.Singleton(w.Context(), cluster.Singleton{Name: "tape", Run: r.run}))
		}
		w.sleep(time.Minute)
		if got := r.all(); len(got) != 2 || got[0] != "a1" || got[1] != "a2" {
			w.Errorf("the instance received %q, want [\"a1\" \"a2\"]", got)
		}
	})
}

// A closed proxy has no buffered messages and sends none. A later call of Node.Proxy returns a new
// proxy.
func TestProxyClose(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		other := proxyOf(w, a, cluster.ProxyConfig{Singleton: "other", BufferSize: 5})
		must(w.T, other.Send(w.Context(), []byte("o")))
		p := proxyOf(w, a, cluster.ProxyConfig{Singleton: "tape"})
		must(w.T, p.Send(w.Context(), []byte("1")))
		asked := make(chan error, 1)
		go func() {
			_, err := p.Ask(w.Context(), []byte("?"))
			asked <- err
		}()
		synctest.Wait()
		must(w.T, p.Close(w.Context()))
		must(w.T, p.Close(w.Context()))
		if err := <-asked; !errors.Is(err, cluster.ErrProxyClosed) {
			w.Errorf("Ask: %v, want ErrProxyClosed", err)
		}
		if err := p.Send(w.Context(), nil); !errors.Is(err, cluster.ErrProxyClosed) {
			w.Errorf("Send: %v, want ErrProxyClosed", err)
		}
		again := proxyOf(w, a, cluster.ProxyConfig{Singleton: "tape", BufferSize: 5})
		must(w.T, again.Send(w.Context(), []byte("2")))
		r, o := &recorder{}, &recorder{}
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "tape", Run: r.run}))
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "other", Run: o.run}))
		w.sleep(5 * time.Second)
		if got := r.all(); len(got) != 1 || got[0] != "a2" {
			w.Errorf("the instance received %q, want [\"a2\"]", got)
		}
		if got := o.all(); len(got) != 1 || got[0] != "ao" {
			w.Errorf("another instance received %q, want [\"ao\"]", got)
		}
		a.Stop()
		<-a.Done()
		must(w.T, again.Close(w.Context()))
	})
}

// The bytes that a proxy buffers are limited.
func TestProxyBufferBytes(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		p := proxyOf(w, a, cluster.ProxyConfig{Singleton: "tape"})
		big := bytes.Repeat([]byte("x"), 1<<20-100)
		sent := 0
		for ; sent < 100; sent++ {
			if err := p.Send(w.Context(), big); err != nil {
				if !errors.Is(err, cluster.ErrBusy) {
					w.Errorf("Send: %v, want ErrBusy", err)
				}
				break
			}
		}
		if sent != 16 {
			w.Errorf("the proxy buffered %d MiB, want 16", sent)
		}
		if err := p.Send(w.Context(), bytes.Repeat([]byte("x"), 1<<20)); !errors.Is(err, transport.ErrTooLarge) {
			w.Errorf("Send of a message that is too large: %v, want ErrTooLarge", err)
		}
	})
}

// Requests that are made while the singleton moves wait for the next instance. They fail if they
// arrive when the previous instance has stopped.
func TestProxyFollowsSingleton(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		o := &instanceCounter{}
		o.host(w.T, nodes...)
		p := proxyOf(w, nodes[2], cluster.ProxyConfig{Singleton: "one"})
		ask := func() string {
			b, err := p.Ask(w.Context(), []byte("?"))
			if errors.Is(err, cluster.ErrNotHosted) || errors.Is(err, transport.ErrQuarantined) {
				return "" // the instance or its node had stopped when the request arrived
			}
			must(w.T, err)
			return string(b)
		}
		if got := ask(); got != "a ?" {
			w.Errorf("Ask = %q, want \"a ?\"", got)
		}
		must(w.T, nodes[0].Shutdown(w.Context()))
		for range 100 {
			if got := ask(); got == "b ?" || got == "c ?" {
				return
			}
		}
		w.Error("no request reached the singleton on b or c")
	})
}

// An instance that does not receive its messages does not block other traffic. Messages beyond the
// limit are rejected.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Name: "stuck", MaxInbox: 3, Run: func(ctx context.Context, _ *cluster.Inbox) error {
			<-ctx.Done()
			return nil
		}}))
		p := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "stuck"})
		answers := make(chan error, 4)
		ask := func() {
			_, err := p.Ask(w.Context(), []byte("?"))
			answers <- err
		}
		for range 3 {
			go ask()
		}
		w.sleep(5 * time.Second)
		ask()
		if err := <-answers; !errors.Is(err, cluster.ErrBusy) {
			w.Errorf("the fourth request: %v, want ErrBusy", err)
		}
		// Other traffic of the same sender continues.
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Name: "echo", Run: func(ctx context.Context, inbox *cluster.Inbox) error {
			for d := range inbox.All(ctx) {
				_ = d.Refuse("out of money")
			}
			return nil
		}}))
		q := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "echo"})
		if _, err := q.Ask(w.Context(), nil); !errors.Is(err, cluster.ErrRefused) || !bytes.Contains([]byte(err.Error()), []byte("out of money")) {
			w.Errorf("Ask that the instance refused: %v, want ErrRefused", err)
		}
		must(w.T, nodes[0].Leave(w.Context(), nodes[0].Self()))
		for range 3 { // the instance stops before it receives these requests, so they were not handled
			if err := <-answers; !errors.Is(err, cluster.ErrNotHosted) {
				w.Errorf("a request that the instance did not receive: %v, want ErrNotHosted", err)
			}
		}
	})
}

func TestProxyArguments(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		p := proxyOf(w, a, cluster.ProxyConfig{})
		if again := proxyOf(w, a, cluster.ProxyConfig{}); again != p {
			w.Error("Proxy returned two proxies for one singleton")
		}
		if again := proxyOf(w, a, cluster.ProxyConfig{Singleton: "singleton", IdentifyInterval: time.Second, BufferSize: 1000}); again != p {
			w.Error("Proxy returned another proxy for the same configuration with explicit defaults")
		}
		if none := proxyOf(w, a, cluster.ProxyConfig{Singleton: "none", BufferSize: -5}); none != proxyOf(w, a, cluster.ProxyConfig{Singleton: "none", BufferSize: -1}) {
			w.Error("Proxy returned two proxies without a buffer")
		}
		for _, cfg := range []cluster.ProxyConfig{{BufferSize: 5}, {Singleton: "x", BufferSize: 10_001}, {Singleton: string(make([]byte, 256))}} {
			if _, err := a.Proxy(w.Context(), cfg); !errors.Is(err, cluster.ErrInvalid) {
				w.Errorf("Proxy(%+v): %v, want ErrInvalid", cfg, err)
			}
		}
		asked := make(chan error, 1)
		go func() {
			_, err := p.Ask(w.Context(), nil)
			asked <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := p.Ask(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Ask: %v, want context.DeadlineExceeded", err)
		}
		a.Stop()
		if err := <-asked; !errors.Is(err, cluster.ErrStopped) {
			w.Errorf("Ask of a node that has ended: %v, want ErrStopped", err)
		}
		<-a.Done()
		if err := p.Send(w.Context(), nil); !errors.Is(err, cluster.ErrStopped) {
			w.Errorf("Send on a node that has ended: %v, want ErrStopped", err)
		}
		if _, err := p.Ask(w.Context(), nil); !errors.Is(err, cluster.ErrStopped) {
			w.Errorf("Ask on a node that has ended: %v, want ErrStopped", err)
		}
	})
}

// A request that the instance has received and not answered fails when the instance ends.
func TestAskEndsWithInstance(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Name: "mute", Run: (&unresponsive{}).run}))
		p := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "mute"})
		asked := make(chan error, 1)
		go func() {
			_, err := p.Ask(w.Context(), nil)
			asked <- err
		}()
		w.sleep(5 * time.Second)
		must(w.T, nodes[0].Shutdown(w.Context()))
		if err := <-asked; !errors.Is(err, cluster.ErrRefused) {
			w.Errorf("Ask: %v, want ErrRefused", err)
		}
	})
}

// Requests that the instance has received and not answered take up room until they are answered or
// the node of the sender is removed. One-way messages are not affected. A request that the instance
// neither keeps nor answers uses no memory.
func TestUnansweredRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		took := make(chan *cluster.Delivery, 10)
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Name: "mute", MaxInbox: 3, Run: func(ctx context.Context, inbox *cluster.Inbox) error {
			for d := range inbox.All(ctx) {
				took <- d
			}
			return nil
		}}))
		p, q := proxyOf(w, nodes[0], cluster.ProxyConfig{Singleton: "mute"}), proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "mute"})
		answers := make(chan error, 10)
		ask := func(p *cluster.Proxy) {
			_, err := p.Ask(w.Context(), []byte("?"))
			answers <- err
		}
		go ask(p)
		first := <-took
		go ask(q)
		kept := weak.Make(<-took)
		go ask(q)
		<-took
		ask(p)
		if err := <-answers; !errors.Is(err, cluster.ErrBusy) {
			w.Errorf("the fourth request: %v, want ErrBusy", err)
		}
		must(w.T, p.Send(w.Context(), []byte("news")))
		if d := <-took; string(d.Payload) != "news" {
			w.Errorf("the instance received %q, want \"news\"", d.Payload)
		}
		for range 100 { // a stack may refer to the request during a collection
			synctest.Wait()
			runtime.GC()
			if kept.Value() == nil {
				break
			}
		}
		if kept.Value() != nil {
			w.Error("requests that the instance has dropped are still in memory")
		}
		must(w.T, first.Reply(nil))
		must(w.T, <-answers)
		go ask(p) // the inbox has room again
		<-took
		ask(p)
		if err := <-answers; !errors.Is(err, cluster.ErrBusy) {
			w.Errorf("the fourth request, repeated: %v, want ErrBusy", err)
		}
		nodes[1].Stop()
		for range 2 {
			if err := <-answers; !errors.Is(err, cluster.ErrStopped) {
				w.Errorf("a request from a node that has ended: %v, want ErrStopped", err)
			}
		}
		w.allUp(nodes[0])
		w.sleep(time.Minute)
		for range 2 {
			go ask(p)
			<-took
		}
	})
}

// The bytes of unanswered requests are limited.
func TestUnansweredRequestBytes(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Name: "mute", Run: (&unresponsive{}).run}))
		p := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "mute"})
		refused, taken := 0, 0
		var mu sync.Mutex
		for range 20 {
			go func() {
				_, err := p.Ask(w.Context(), bytes.Repeat([]byte("x"), 1<<20-100))
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, cluster.ErrBusy) {
					refused++
				} else {
					taken++
				}
			}()
			w.sleep(5 * time.Second)
		}
		if mu.Lock(); refused != 4 || taken != 0 {
			w.Errorf("%d requests were rejected and %d ended otherwise, want 4 and 0", refused, taken)
		}
		mu.Unlock()
		must(w.T, nodes[0].Shutdown(w.Context()))
		w.sleep(time.Second)
		if mu.Lock(); refused != 4 || taken != 16 {
			w.Errorf("at the end %d requests were rejected and %d ended otherwise, want 4 and 16", refused, taken)
		}
		mu.Unlock()
	})
}

// unresponsive receives requests and does not reply.
type unresponsive struct{}

func (*unresponsive) run(ctx context.Context, inbox *cluster.Inbox) error {
	for range inbox.All(ctx) {
	}
	return nil
}
