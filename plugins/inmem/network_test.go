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

// place is a node that records the frames that it receives.
type place struct {
	*inmem.Carrier
	mu   sync.Mutex
	got  []string
	told []error
}

func (p *place) Receive(_ transport.Lane, from string, frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, from+":"+string(frame))
}

func (p *place) Connection(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, err)
}

// heard returns the frames received since its previous call.
func (p *place) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

func join(t *testing.T, n *inmem.Network, name string) *place {
	t.Helper()
	p := &place{Carrier: n.Carrier(identity.Node{Name: name, UID: 1})}
	if err := p.Start(p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (p *place) send(t *testing.T, to *place, frames ...string) {
	t.Helper()
	for _, frame := range frames {
		if err := p.Send(transport.Data, to.Self(), []byte(frame)); err != nil {
			t.Errorf("Send: %v", err)
		}
	}
}

func wantHeard(t *testing.T, p *place, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := p.heard(); !slices.Equal(got, want) {
		t.Errorf("%s hears %v, want %v", p.Self().Name, got, want)
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
		wantHeard(t, a)
		wantHeard(t, b)
		wantHeard(t, c, "b:x")
		if n.Lost() != 2 {
			t.Errorf("%d frames are lost", n.Lost())
		}
		heal()
		oneWay := n.CutOneWay([]string{"a", "b"}, []string{"b"})
		a.send(t, b, "y")
		b.send(t, a, "y")
		b.send(t, b, "to myself")
		wantHeard(t, b, "b:to myself")
		wantHeard(t, a, "b:y")
		oneWay()
		a.send(t, b, "z")
		wantHeard(t, b, "a:z")
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
		wantHeard(t, b)
		time.Sleep(time.Millisecond)
		wantHeard(t, b, "a:1", "a:2")
		a.send(t, b, "late")
		remove()
		a.send(t, b, "early")
		wantHeard(t, b, "a:early")
		time.Sleep(time.Second)
		wantHeard(t, b, "a:late")

		defer n.Inject(inmem.Fault{Jitter: time.Second})()
		var want []string
		for i := range 20 {
			a.send(t, b, fmt.Sprint(i))
			want = append(want, fmt.Sprint("a:", i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := b.heard()
		if slices.Equal(got, want) {
			t.Error("nothing is overtaken")
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("heard %v", got)
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
			return len(b.heard())
		}
		if got := count(inmem.Fault{Drop: 0.3}); got < 600 || got > 800 {
			t.Errorf("%d of 1,000 arrive, 30%% are lost", got)
		}
		if got := count(inmem.Fault{Duplicate: 0.5}); got < 1400 || got > 1600 {
			t.Errorf("%d arrive for 1,000, half of them twice", got)
		}
		if one, two := count(inmem.Fault{Drop: 0.3}), count(inmem.Fault{Drop: 0.3}); one != two {
			t.Errorf("the same seed loses %d and %d", 1000-one, 1000-two)
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
		wantHeard(t, a)
		wantHeard(t, b)
		resume()
		wantHeard(t, a, "b:3", "b:4")
		wantHeard(t, b, "a:1", "a:2")
		resume()
		a.send(t, b, "5")
		wantHeard(t, b, "a:5")
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
			t.Errorf("Send: %v", err)
		}
		b.send(t, a, "lost")
		reconnect()
		b.send(t, a, "x")
		wantHeard(t, a, "b:x")
		if !slices.Equal(a.told, []error{cause, nil}) {
			t.Errorf("told %v", a.told)
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
		if got := len(b.heard()); got != 10 || n.Lost() != 5 {
			t.Errorf("%d arrive, %d are lost", got, n.Lost())
		}
	})
}
