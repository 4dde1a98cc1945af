// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package tcpproxy forwards connections between a client and a server in a test and breaks a
// connection at a chosen byte.
//
//	proxy := tcpproxy.Start(t, server.Addr())
//	client := dial(proxy.Addr())
//	fault := proxy.Arm(tcpproxy.Fault{Direction: tcpproxy.ToServer, After: 100, Action: tcpproxy.Stall})
//	client.Append(ctx, ...)  // its first 100 bytes arrive
//	<-fault.Struck()
//	fault.Release()          // the rest arrives, even if the client has closed its connection
//
// The proxy holds the bytes that a client has sent, even if the client closes its connection. After
// a stall, the server receives all bytes and then the end of the stream. This simulates a commit
// that arrives late.
package tcpproxy

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// Proxy forwards TCP connections to a server. Its methods are safe for concurrent use.
type Proxy struct {
	upstream string
	listener net.Listener
	wait     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // signals a change of a field below or of a link
	links   map[*link]struct{}
	armed   *Armed // nil if no fault is armed
	down    bool
	frozen  bool
	modes   [directions]mode // modes of all connections
	closed  bool
	stats   Stats
}

// Stats are the numbers of forwarded bytes.
type Stats struct{ ToServer, ToClient int64 }

// Start starts a proxy on a free port for a server: a host and port, or the path of a socket, which
// starts with "/". It ends with the test.
func Start(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{upstream: upstream, listener: listener, links: map[*link]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.wait.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr returns the host and port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Arm arms a fault. It replaces an armed fault that has not occurred.
func (p *Proxy) Arm(f Fault) *Armed {
	a := &Armed{fault: f, proxy: p, left: f.After, struck: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = a
	return a
}

// ResetAll resets all open connections.
func (p *Proxy) ResetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetAll()
}

func (p *Proxy) resetAll() {
	for l := range p.links {
		l.reset()
	}
	p.changed.Broadcast()
}

// SetDown simulates a server that is down, or up again: existing and new connections are reset
// while it is down.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down = down; down {
		p.resetAll()
	}
}

// SetFrozen simulates an unplugged cable, or ends the simulation. While frozen, no byte passes on
// any connection, including new ones, and no byte is lost.
func (p *Proxy) SetFrozen(frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = frozen
	p.changed.Broadcast()
}

// SetStalled delays the bytes of one direction on all connections, including new ones, or resumes
// them. No byte is lost.
func (p *Proxy) SetStalled(d Direction, stalled bool) { p.set(d, hold, stalled) }

// SetDropped discards the bytes of one direction on all connections, including new ones, or stops
// discarding them. Connections that have lost bytes are unusable: see ResetAll.
func (p *Proxy) SetDropped(d Direction, dropped bool) { p.set(d, swallow, dropped) }

func (p *Proxy) set(d Direction, m mode, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.modes[d] = pass; on {
		p.modes[d] = m
	}
	p.changed.Broadcast()
}

// Stats returns the current counters.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection until both sides have ended.
func (p *Proxy) serve(client net.Conn) {
	network := "tcp"
	if strings.HasPrefix(p.upstream, "/") {
		network = "unix"
	}
	server, err := new(net.Dialer).DialContext(context.Background(), network, p.upstream)
	l := &link{proxy: p}
	l.ends[ToServer], l.ends[ToClient] = server, client
	p.mu.Lock()
	if err != nil || p.down || p.closed {
		p.mu.Unlock()
		abort(client)
		if err == nil {
			abort(server)
		}
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.resetAll()
	p.mu.Unlock()
	_ = p.listener.Close()
	p.wait.Wait()
}
