// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package testproxy stands between a client and a server in a test and breaks
// the connection where the test says, to the byte.
//
//	proxy := testproxy.Start(t, server.Addr())
//	client := dial(proxy.Addr())
//	fault := proxy.Arm(testproxy.Fault{Direction: testproxy.ToServer, After: 100, Action: testproxy.Stall})
//	client.Append(ctx, ...)  // 100 bytes of it arrive, then nothing
//	<-fault.Struck()
//	fault.Release()          // and now the rest, though the client may be gone
//
// What a client has sent is held by the proxy, so a client that gives up and
// closes its connection takes nothing back: after a stall the server gets
// everything, then the end of the stream. That is how a commit lands late.
package tcpproxy

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// Proxy forwards TCP connections to a server. Its methods are safe for concurrent
// use.
type Proxy struct {
	upstream string
	listener net.Listener
	wait     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // something below, or of a link, is another
	links   map[*link]struct{}
	armed   *Armed // nil if nothing is to strike
	down    bool
	frozen  bool
	modes   [directions]mode // of all connections
	closed  bool
	stats   Stats
}

// Stats is what went through a proxy.
type Stats struct {
	// Connections is how many were accepted, Refused how many of them were ended at once
	// because the proxy was down or the server could not be reached.
	Connections, Refused int
	// ToServer and ToClient are bytes that were forwarded.
	ToServer, ToClient int64
}

// Start starts a proxy on a free port before a server: a host and port, or the
// path of a socket, which begins with "/". It ends with the test.
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

// Addr returns the host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Arm lets a fault strike when its time has come, in place of one that was armed
// before and has not struck.
func (p *Proxy) Arm(f Fault) *Armed {
	a := &Armed{fault: f, proxy: p, left: f.After, struck: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = a
	return a
}

// ResetAll resets all connections that there are.
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

// SetDown makes the server look as if it were away, or back again: connections
// are reset, the present ones and new ones.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down = down; down {
		p.resetAll()
	}
}

// SetFrozen makes the network as if a cable were pulled, or plugged in again: nothing
// passes on any connection, of new ones either, and nothing is lost.
func (p *Proxy) SetFrozen(frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = frozen
	p.changed.Broadcast()
}

// SetStalled holds back what goes in one direction, or lets it go on: on all
// connections, new ones too. Nothing is lost.
func (p *Proxy) SetStalled(d Direction, stalled bool) { p.set(d, hold, stalled) }

// SetDropped swallows what goes in one direction, or stops that: on all connections, new
// ones too. Those that have lost bytes are of no use any more: see ResetAll.
func (p *Proxy) SetDropped(d Direction, dropped bool) { p.set(d, swallow, dropped) }

func (p *Proxy) set(d Direction, m mode, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.modes[d] = pass; on {
		p.modes[d] = m
	}
	p.changed.Broadcast()
}

// Stats returns what went through so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// accept runs until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection until both of its sides are done.
func (p *Proxy) serve(client net.Conn) {
	network := "tcp"
	if strings.HasPrefix(p.upstream, "/") {
		network = "unix"
	}
	server, err := new(net.Dialer).DialContext(context.Background(), network, p.upstream)
	l := &link{proxy: p}
	l.ends[ToServer], l.ends[ToClient] = server, client
	p.mu.Lock()
	p.stats.Connections++
	if err != nil || p.down || p.closed {
		p.stats.Refused++
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
