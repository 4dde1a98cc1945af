// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package tcpproxy

import (
	"net"
	"sync"
)

type mode int

const (
	pass mode = iota
	hold
	swallow
)

// flow is one direction of a link. The proxy's mutex guards it.
type flow struct {
	held  []byte // read and not yet forwarded
	ended bool   // the sender has closed its side
	mode  mode
}

type link struct {
	proxy *Proxy
	ends  [directions]net.Conn // the destination of each direction
	flows [directions]flow
	over  bool // ended by a fault; guarded by the proxy's mutex
}

// maxHeld is the maximum number of bytes that are read but not yet forwarded.
const maxHeld = 64 << 20

// run forwards both directions until both have ended.
func (l *link) run() {
	var wait sync.WaitGroup
	for d := range Direction(directions) {
		wait.Go(func() { l.read(d) })
		wait.Go(func() { l.forward(d) })
	}
	wait.Wait()
	for _, end := range l.ends {
		_ = end.Close()
	}
}

// read reads from one side. It continues while forwarding is blocked.
func (l *link) read(d Direction) {
	p, f := l.proxy, &l.flows[d]
	buf := make([]byte, 64<<10)
	for {
		n, err := l.ends[d.opposite()].Read(buf)
		p.mu.Lock()
		for len(f.held) > maxHeld && !l.over {
			p.changed.Wait()
		}
		if !l.over {
			f.held = append(f.held, buf[:n]...)
		}
		f.ended = f.ended || err != nil
		p.changed.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// forward writes the bytes that read has received. At the end of the stream, it closes the
// destination.
func (l *link) forward(d Direction) {
	broken := false // the destination is closed
	for {
		chunk, armed, ok := l.next(d)
		if !ok {
			return
		}
		if len(chunk) == 0 && armed == nil {
			closeWrite(l.ends[d])
			return
		}
		if !broken && len(chunk) > 0 {
			_, err := l.ends[d].Write(chunk)
			broken = err != nil
		}
		if armed != nil {
			l.strike(d, armed)
		}
	}
}

// next waits for bytes that may pass. It returns them with the fault that follows them. If it
// returns neither, the stream has ended. ok is false if a fault has ended the link.
func (l *link) next(d Direction) (chunk []byte, armed *Armed, ok bool) {
	p, f := l.proxy, &l.flows[d]
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if l.over {
			return nil, nil, false
		}
		now := max(f.mode, p.modes[d])
		if now == swallow {
			f.held = nil
		}
		if !p.frozen && now != hold && (len(f.held) > 0 || f.ended) {
			break
		}
		p.changed.Wait()
	}
	n := len(f.held)
	if a := p.armed; a != nil && a.fault.Direction == d && n > 0 {
		if int64(n) >= a.left {
			n, armed, p.armed = int(a.left), a, nil
		} else {
			a.left -= int64(n)
		}
	}
	chunk, f.held = f.held[:n:n], f.held[n:]
	if d == ToServer { // count the bytes before sending them, so that a receiver finds them counted
		p.stats.ToServer += int64(n)
	} else {
		p.stats.ToClient += int64(n)
	}
	p.changed.Broadcast()
	return chunk, armed, true
}

func (l *link) strike(d Direction, armed *Armed) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if armed.released {
		return
	}
	armed.link = l
	close(armed.struck)
	switch armed.fault.Action {
	case Cut:
		l.over = true
		for _, end := range l.ends {
			closeWrite(end)
		}
	case Reset:
		l.reset()
	case Stall:
		l.set(d, hold, armed.fault.Both)
	case Drop:
		l.set(d, swallow, armed.fault.Both)
	}
	p.changed.Broadcast()
}

func (l *link) set(d Direction, m mode, both bool) {
	l.flows[d].mode = m
	if both {
		l.flows[d.opposite()].mode = m
	}
}

func (l *link) reset() {
	l.over = true
	for _, end := range l.ends {
		abort(end)
	}
}

// abort closes a connection with an RST if its type supports it.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
