// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package natstest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/transport"
)

func TestMain(m *testing.M) {
	natstest.RunIfServer()
	goleak.VerifyTestMain(m)
}

// place is a node that receives frames.
type place struct {
	t *testing.T
	*nats.Carrier
	heard chan string
	told  chan error
}

func (p *place) Receive(_ transport.Lane, from string, frame []byte) {
	p.heard <- from + ":" + string(frame)
}

func (p *place) Connection(err error) { p.told <- err }

var uids atomic.Uint64

func join(t *testing.T, access nats.Access, name string) *place {
	t.Helper()
	c, err := nats.Connect(nats.Config{Access: access, Cluster: "test", Self: identity.Node{Name: name, UID: uids.Add(1)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p := &place{t: t, Carrier: c, heard: make(chan string, 1000), told: make(chan error, 100)}
	if err := c.Start(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// say sends a frame and returns when the server has received it.
func (p *place) say(to *place, text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Minute) // without an end it is 3 s
	defer cancel()
	if err := errors.Join(p.Send(transport.Data, to.Self(), []byte(text)), p.Flush(ctx)); err != nil {
		p.t.Errorf("%v says %q: %v", p.Self(), text, err)
	}
}

// hear returns the next frame.
func (p *place) hear() string {
	p.t.Helper()
	select {
	case text := <-p.heard:
		return text
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("%v hears nothing", p.Self())
		return ""
	}
}

// talks checks that the next frame at one node is the one that another node sends.
func talks(from, to *place) {
	from.t.Helper()
	text := fmt.Sprint(uids.Add(1))
	from.say(to, text)
	if got, want := to.hear(), from.Self().Name+":"+text; got != want {
		from.t.Errorf("%v hears %q, want %q", to.Self(), got, want)
	}
}

// reaches sends a frame until it arrives, for nodes that may not have detected the loss of a
// connection.
func reaches(from, to *place) {
	from.t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		text := fmt.Sprint(uids.Add(1))
		_ = from.Send(transport.Data, to.Self(), []byte(text))
		for waits := true; waits; {
			select {
			case got := <-to.heard:
				if got == from.Self().Name+":"+text {
					return
				}
			case <-ticker.C:
				waits = false
			}
		}
	}
}

// silent checks that no frame has arrived: a frame that the node sends to itself arrives first.
func (p *place) silent() {
	p.t.Helper()
	talks(p, p)
}

func nodes(t *testing.T, names ...string) natstest.Config {
	t.Helper()
	users, err := natstest.Nodes("test", names...)
	if err != nil {
		t.Fatal(err)
	}
	return natstest.Config{Users: users}
}

// pair returns two nodes, each at its own server.
func pair(t *testing.T) (split *natstest.Split, a, b *place) {
	t.Helper()
	split = natstest.StartSplit(t, nodes(t, "a.example:1", "b"))
	a = join(t, split.A.Access(t, "a.example:1"), "a.example:1")
	b = join(t, split.B.Access(t, "b"), "b")
	split.Heal() // now both servers know both
	talks(a, b)
	talks(b, a)
	return split, a, b
}

func TestCut(t *testing.T) {
	t.Parallel()
	split, a, b := pair(t)
	for range 2 {
		split.Cut()
		a.say(b, "lost")
		b.say(a, "lost")
		a.silent()
		b.silent()
		split.Heal()
		talks(a, b)
		talks(b, a)
	}
	if len(a.told)+len(b.told) > 0 {
		t.Error("a node lost its connection")
	}
}

func TestFreezeAndStall(t *testing.T) {
	t.Parallel()
	split, a, b := pair(t)
	split.Freeze()
	a.say(b, "late")
	b.say(a, "late")
	a.silent()
	b.silent()
	split.Heal()
	if x, y := a.hear(), b.hear(); x != "b:late" || y != "a.example:1:late" {
		t.Errorf("heard %q and %q", x, y)
	}
	split.Stall(natstest.AToB)
	a.say(b, "later")
	talks(b, a)
	b.silent()
	split.Heal()
	if got := b.hear(); got != "a.example:1:later" {
		t.Errorf("heard %q", got)
	}
}

func TestDropOneWay(t *testing.T) {
	t.Parallel()
	split, a, b := pair(t)
	for _, test := range []struct {
		d        natstest.Direction
		from, to *place
	}{{natstest.AToB, a, b}, {natstest.BToA, b, a}} {
		split.Drop(test.d)
		test.from.say(test.to, "lost")
		talks(test.to, test.from)
		test.to.silent()
		split.Heal()
		talks(a, b)
		talks(b, a)
	}
}

// Permissions prevent frames from one node to another without an error.
func TestMute(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, nodes(t, "a.example:1", "b", "c"))
	a, b, c := join(t, s.Access(t, "a.example:1"), "a.example:1"), join(t, s.Access(t, "b"), "b"), join(t, s.Access(t, "c"), "c")
	talks(a, b)
	unmute := s.Mute("a.example:1", "b")
	a.say(b, "lost")
	if err := a.Send(transport.Control, identity.Node{Name: "b"}, []byte("lost")); err != nil {
		t.Error(err)
	}
	talks(a, c)
	talks(b, a)
	talks(c, b)
	b.silent()
	unmute()
	talks(a, b)
	if n := a.Stats().Refused + b.Stats().Refused; n != 0 {
		t.Errorf("%d refusals were told", n)
	}
}

// A node without the right to subscribe is disconnected until it has the right again.
func TestRightsChangeAtRunTime(t *testing.T) {
	t.Parallel()
	cfg := nodes(t, "a", "b")
	s := natstest.Start(t, cfg)
	a, b := join(t, s.Access(t, "a"), "a"), join(t, s.Access(t, "b"), "b")
	talks(b, a)
	s.Change(func(c *natstest.Config) { c.Users[0].Permissions = cfg.Users[1].Permissions })
	if err := <-a.told; err == nil {
		t.Error("told that it is connected")
	}
	s.Change(func(c *natstest.Config) { c.Users[0].Permissions = cfg.Users[0].Permissions })
	for <-a.told != nil { // each attempt in between
		continue
	}
	reaches(b, a)
	reaches(a, b)
	if len(b.told) > 0 {
		t.Error("the other one lost its connection")
	}
}

// A restarted server has the same address.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, nodes(t, "a"))
	a := join(t, s.Access(t, "a"), "a")
	talks(a, a)
	s.Kill()
	s.Kill()
	if err := <-a.told; err == nil {
		t.Error("told that it is connected")
	}
	s.Restart()
	for <-a.told != nil {
		continue
	}
	reaches(a, a)
}

// The connection of one node can be broken, and a server stores leases.
func TestClientProxyAndLeases(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.Config{Users: []natstest.User{{Name: "a"}, {Name: "b"}}, JetStream: true})
	proxy := tcpproxy.Start(t, s.Addr())
	a, b := join(t, s.AccessVia(t, proxy, "a"), "a"), join(t, s.Access(t, "b"), "b")
	talks(a, b)
	proxy.SetDown(true)
	if err := <-a.told; err == nil {
		t.Error("told that it is connected")
	}
	b.silent()
	proxy.SetDown(false)
	for <-a.told != nil {
		continue
	}
	reaches(b, a)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	leases, err := nats.OpenLeases(ctx, nats.LeasesConfig{Access: s.Access(t, "b"), Cluster: "test", Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leases.Close() }()
	if _, err := leases.Create(ctx, "l", "b"); err != nil {
		t.Error(err)
	}
}
