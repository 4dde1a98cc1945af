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

// node is a node that receives frames.
type node struct {
	t *testing.T
	*nats.Carrier
	frames chan string
	events chan error
}

func (p *node) Receive(_ transport.Lane, from string, frame []byte) {
	p.frames <- from + ":" + string(frame)
}

func (p *node) Connection(err error) { p.events <- err }

var uids atomic.Uint64

func join(t *testing.T, access nats.Access, name string) *node {
	t.Helper()
	c, err := nats.Connect(nats.Config{Access: access, Cluster: "test", Self: identity.Node{Name: name, UID: uids.Add(1)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p := &node{t: t, Carrier: c, frames: make(chan string, 1000), events: make(chan error, 100)}
	if err := c.Start(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// send sends a frame and returns when the server has received it.
func (p *node) send(to *node, text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Minute) // without a deadline, Flush waits at most 3 s
	defer cancel()
	if err := errors.Join(p.Send(transport.Data, to.Self(), []byte(text)), p.Flush(ctx)); err != nil {
		p.t.Errorf("%v: send %q: %v", p.Self(), text, err)
	}
}

// next returns the next frame.
func (p *node) next() string {
	p.t.Helper()
	select {
	case text := <-p.frames:
		return text
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("%v received no frame", p.Self())
		return ""
	}
}

// delivers sends a frame from one node to another. It checks that the other node receives this
// frame next.
func delivers(from, to *node) {
	from.t.Helper()
	text := fmt.Sprint(uids.Add(1))
	from.send(to, text)
	if got, want := to.next(), from.Self().Name+":"+text; got != want {
		from.t.Errorf("%v received %q, want %q", to.Self(), got, want)
	}
}

// reaches sends a frame until it arrives, for nodes that may not have detected the loss of a
// connection.
func reaches(from, to *node) {
	from.t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		text := fmt.Sprint(uids.Add(1))
		_ = from.Send(transport.Data, to.Self(), []byte(text))
		for waits := true; waits; {
			select {
			case got := <-to.frames:
				if got == from.Self().Name+":"+text {
					return
				}
			case <-ticker.C:
				waits = false
			}
		}
	}
}

// wantNoFrame checks that no frame has arrived: a frame that the node sends to itself arrives
// first.
func (p *node) wantNoFrame() {
	p.t.Helper()
	delivers(p, p)
}

func nodes(t *testing.T, names ...string) natstest.Config {
	t.Helper()
	users, err := natstest.Nodes("test", names...)
	if err != nil {
		t.Fatal(err)
	}
	return natstest.Config{Users: users}
}

// pair returns two nodes on different servers.
func pair(t *testing.T) (split *natstest.Split, a, b *node) {
	t.Helper()
	split = natstest.StartSplit(t, nodes(t, "a.example:1", "b"))
	a = join(t, split.A.Access(t, "a.example:1"), "a.example:1")
	b = join(t, split.B.Access(t, "b"), "b")
	split.Heal() // both servers have announced both clients
	delivers(a, b)
	delivers(b, a)
	return split, a, b
}

func TestCut(t *testing.T) {
	t.Parallel()
	split, a, b := pair(t)
	for range 2 {
		split.Cut()
		a.send(b, "lost")
		b.send(a, "lost")
		a.wantNoFrame()
		b.wantNoFrame()
		split.Heal()
		delivers(a, b)
		delivers(b, a)
	}
	if len(a.events)+len(b.events) > 0 {
		t.Error("a node lost its connection")
	}
}

func TestFreezeAndStall(t *testing.T) {
	t.Parallel()
	split, a, b := pair(t)
	split.Freeze()
	a.send(b, "late")
	b.send(a, "late")
	a.wantNoFrame()
	b.wantNoFrame()
	split.Heal()
	if x, y := a.next(), b.next(); x != "b:late" || y != "a.example:1:late" {
		t.Errorf("received %q and %q, want the late frames of both nodes", x, y)
	}
	split.Stall(natstest.AToB)
	a.send(b, "later")
	delivers(b, a)
	b.wantNoFrame()
	split.Heal()
	if got := b.next(); got != "a.example:1:later" {
		t.Errorf("received %q, want the later frame", got)
	}
}

func TestDropOneWay(t *testing.T) {
	t.Parallel()
	split, a, b := pair(t)
	for _, test := range []struct {
		d        natstest.Direction
		from, to *node
	}{{natstest.AToB, a, b}, {natstest.BToA, b, a}} {
		split.Drop(test.d)
		test.from.send(test.to, "lost")
		delivers(test.to, test.from)
		test.to.wantNoFrame()
		split.Heal()
		delivers(a, b)
		delivers(b, a)
	}
}

// Permissions prevent frames from one node to another without an error.
func TestMute(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, nodes(t, "a.example:1", "b", "c"))
	a, b, c := join(t, s.Access(t, "a.example:1"), "a.example:1"), join(t, s.Access(t, "b"), "b"), join(t, s.Access(t, "c"), "c")
	delivers(a, b)
	unmute := s.Mute("a.example:1", "b")
	a.send(b, "lost")
	if err := a.Send(transport.Control, identity.Node{Name: "b"}, []byte("lost")); err != nil {
		t.Error(err)
	}
	delivers(a, c)
	delivers(b, a)
	delivers(c, b)
	b.wantNoFrame()
	unmute()
	delivers(a, b)
	if n := a.Stats().Refused + b.Stats().Refused; n != 0 {
		t.Errorf("%d refusals were reported, want 0", n)
	}
}

// A node that loses its permission to subscribe is disconnected until it has the permission again.
func TestPermissionChangeAtRunTime(t *testing.T) {
	t.Parallel()
	cfg := nodes(t, "a", "b")
	s := natstest.Start(t, cfg)
	a, b := join(t, s.Access(t, "a"), "a"), join(t, s.Access(t, "b"), "b")
	delivers(b, a)
	s.Change(func(c *natstest.Config) { c.Users[0].Permissions = cfg.Users[1].Permissions })
	if err := <-a.events; err == nil {
		t.Error("the first event reports a connection, want a disconnection")
	}
	s.Change(func(c *natstest.Config) { c.Users[0].Permissions = cfg.Users[0].Permissions })
	for <-a.events != nil { // each failed attempt to connect
		continue
	}
	reaches(b, a)
	reaches(a, b)
	if len(b.events) > 0 {
		t.Error("the other node lost its connection")
	}
}

// A restarted server has the same address.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, nodes(t, "a"))
	a := join(t, s.Access(t, "a"), "a")
	delivers(a, a)
	s.Kill()
	s.Kill()
	if err := <-a.events; err == nil {
		t.Error("the first event reports a connection, want a disconnection")
	}
	s.Restart()
	for <-a.events != nil {
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
	delivers(a, b)
	proxy.SetDown(true)
	if err := <-a.events; err == nil {
		t.Error("the first event reports a connection, want a disconnection")
	}
	b.wantNoFrame()
	proxy.SetDown(false)
	for <-a.events != nil {
		continue
	}
	reaches(b, a)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cfg := nats.LeasesConfig{Access: s.Access(t, "b"), Cluster: "test", Name: "b"}
	if err := nats.CreateLeaseBucket(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	leases, err := nats.OpenLeases(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leases.Close() }()
	if _, err := leases.Create(ctx, "l", "b"); err != nil {
		t.Error(err)
	}
}
