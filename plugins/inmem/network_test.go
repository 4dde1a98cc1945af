// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
	"github.com/refold-io/refold/transport/transporttest"
)

func TestCarrier(t *testing.T) {
	t.Parallel()
	network := func(n *inmem.Network) transporttest.Network {
		return func(self identity.Node) transport.Carrier { return n.Carrier(self) }
	}
	transporttest.Run(t, transporttest.Config{
		Network: func(testing.TB) transporttest.Network { return network(inmem.NewNetwork(inmem.NetworkConfig{})) },
		Admin: func(testing.TB) (transporttest.Network, func(string) transport.AdminClient) {
			n := inmem.NewNetwork(inmem.NetworkConfig{})
			return network(n), n.Operator
		},
	})
}

// recorder is a node that records the received frames and the calls of Connection.
type recorder struct {
	*inmem.Carrier
	mu          sync.Mutex
	frames      []string
	connections []error
}

func (p *recorder) Receive(_ transport.Lane, from string, frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = append(p.frames, from+":"+string(frame))
}

func (p *recorder) Connection(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connections = append(p.connections, err)
}

// received returns the frames received since its previous call.
func (p *recorder) received() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	received := p.frames
	p.frames = nil
	return received
}

func join(t *testing.T, n *inmem.Network, name string) *recorder {
	t.Helper()
	p := &recorder{Carrier: n.Carrier(identity.Node{Name: name, UID: 1})}
	if err := p.Start(p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (p *recorder) send(t *testing.T, to *recorder, frames ...string) {
	t.Helper()
	for _, frame := range frames {
		if err := p.Send(transport.Data, to.Self(), []byte(frame)); err != nil {
			t.Errorf("Send: %v", err)
		}
	}
}

func wantReceived(t *testing.T, p *recorder, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := p.received(); !slices.Equal(got, want) {
		t.Errorf("%s received %v, want %v", p.Self().Name, got, want)
	}
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := inmem.NewNetwork(inmem.NetworkConfig{})
		a, b, c := join(t, n, "a"), join(t, n, "b"), join(t, n, "c")
		heal := n.Partition([]string{"a"}, []string{"b", "c"})
		a.send(t, b, "x")
		b.send(t, a, "x")
		b.send(t, c, "x")
		wantReceived(t, a)
		wantReceived(t, b)
		wantReceived(t, c, "b:x")
		if n.Lost() != 2 {
			t.Errorf("%d frames are lost, want 2", n.Lost())
		}
		heal()
		oneWay := n.CutOneWay([]string{"a", "b"}, []string{"b"})
		a.send(t, b, "y")
		b.send(t, a, "y")
		b.send(t, b, "to myself")
		wantReceived(t, b, "b:to myself")
		wantReceived(t, a, "b:y")
		oneWay()
		a.send(t, b, "z")
		wantReceived(t, b, "a:z")
	})
}

func TestDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := inmem.NewNetwork(inmem.NetworkConfig{Seed: 3})
		a, b := join(t, n, "a"), join(t, n, "b")
		remove := n.Inject(inmem.Fault{From: "a", To: "b", Lanes: []transport.Lane{transport.Data}, Delay: time.Second})
		a.send(t, b, "1", "2")
		time.Sleep(time.Second - time.Millisecond)
		wantReceived(t, b)
		time.Sleep(time.Millisecond)
		wantReceived(t, b, "a:1", "a:2")
		a.send(t, b, "late")
		remove()
		a.send(t, b, "early")
		wantReceived(t, b, "a:early")
		time.Sleep(time.Second)
		wantReceived(t, b, "a:late")

		defer n.Inject(inmem.Fault{Jitter: time.Second})()
		var want []string
		for i := range 20 {
			a.send(t, b, fmt.Sprint(i))
			want = append(want, fmt.Sprint("a:", i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := b.received()
		if slices.Equal(got, want) {
			t.Error("the frames arrived in the order of Send, want another order")
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("received %v, want %v", got, want)
		}
	})
}

func TestDropAndDuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		count := func(f inmem.Fault) int {
			n := inmem.NewNetwork(inmem.NetworkConfig{Seed: 1})
			a, b := join(t, n, "a"), join(t, n, "b")
			n.Inject(f)
			for range 1000 {
				a.send(t, b, "x")
			}
			synctest.Wait()
			return len(b.received())
		}
		if got := count(inmem.Fault{Drop: 0.3}); got < 600 || got > 800 {
			t.Errorf("%d of 1,000 frames arrived, want about 700", got)
		}
		if got := count(inmem.Fault{Duplicate: 0.5}); got < 1400 || got > 1600 {
			t.Errorf("%d frames arrived, want about 1,500", got)
		}
		if one, two := count(inmem.Fault{Drop: 0.3}), count(inmem.Fault{Drop: 0.3}); one != two {
			t.Errorf("two runs of the same seed lose %d and %d frames", 1000-one, 1000-two)
		}
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := inmem.NewNetwork(inmem.NetworkConfig{})
		a, b := join(t, n, "a"), join(t, n, "b")
		resume := n.Pause("a")
		a.send(t, b, "1", "2")
		b.send(t, a, "3", "4")
		time.Sleep(time.Minute)
		wantReceived(t, a)
		wantReceived(t, b)
		resume()
		wantReceived(t, a, "b:3", "b:4")
		wantReceived(t, b, "a:1", "a:2")
		resume()
		a.send(t, b, "5")
		wantReceived(t, b, "a:5")
	})
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := inmem.NewNetwork(inmem.NetworkConfig{})
		a, b := join(t, n, "a"), join(t, n, "b")
		cause := errors.New("no carrier")
		reconnect := n.Disconnect("a", cause)
		if err := a.Send(transport.Data, b.Self(), []byte("x")); !errors.Is(err, cause) {
			t.Errorf("Send: %v, want the cause of the disconnection", err)
		}
		b.send(t, a, "lost")
		reconnect()
		b.send(t, a, "x")
		wantReceived(t, a, "b:x")
		if !slices.Equal(a.connections, []error{cause, nil}) {
			t.Errorf("Connection was called with %v, want the cause and nil", a.connections)
		}
	})
}

func TestQueuesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := inmem.NewNetwork(inmem.NetworkConfig{Queue: 10})
		a, b := join(t, n, "a"), join(t, n, "b")
		resume := n.Pause("b")
		for range 15 {
			a.send(t, b, "x")
		}
		resume()
		synctest.Wait()
		if got := len(b.received()); got != 10 || n.Lost() != 5 {
			t.Errorf("%d frames arrived and %d were lost, want 10 and 5", got, n.Lost())
		}
	})
}
