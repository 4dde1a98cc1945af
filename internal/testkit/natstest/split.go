// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"testing"

	"github.com/refold-io/refold/internal/testkit/tcpproxy"
)

// Direction is a direction between the servers of a Split. B opens the route to A, so the proxy
// treats A as the server.
type Direction = tcpproxy.Direction

const (
	// AToB is from A to B.
	AToB = tcpproxy.ToClient
	// BToA is from B to A.
	BToA = tcpproxy.ToServer
)

// Split is a pair of servers whose route passes a proxy. Clients stay connected to their servers
// during a fault. Call Heal before the next fault.
type Split struct {
	A, B  *Server
	proxy *tcpproxy.Proxy
	lost  bool // the route has lost bytes
}

// StartSplit starts two servers with the same users and waits for the route between them.
func StartSplit(tb testing.TB, cfg Config) *Split {
	tb.Helper()
	s := &Split{A: Start(tb, cfg)}
	s.proxy = tcpproxy.Start(tb, s.A.RouteAddr())
	cfg.Routes = append(cfg.clone().Routes, s.proxy.Addr())
	s.B = Start(tb, cfg)
	s.wait()
	return s
}

func (s *Split) wait() {
	s.A.tb.Helper()
	passes(s.A, s.B)
	passes(s.B, s.A)
}

// Cut ends the route and prevents a new one. When Cut returns, both servers have detected the end
// of the route.
func (s *Split) Cut() {
	s.A.tb.Helper()
	s.proxy.SetDown(true)
	s.A.WaitForRoutes(0)
	s.B.WaitForRoutes(0)
}

// Freeze delays all messages until Heal.
func (s *Split) Freeze() { s.proxy.SetFrozen(true) }

// Stall delays messages in one direction until Heal.
func (s *Split) Stall(d Direction) { s.proxy.SetStalled(d, true) }

// Drop discards messages in one direction.
func (s *Split) Drop(d Direction) {
	s.proxy.SetDropped(d, true)
	s.lost = true
}

// Heal ends all faults. When it returns, messages pass in both directions to all clients.
func (s *Split) Heal() {
	s.A.tb.Helper()
	if s.lost {
		s.Cut() // the rest of the stream would be invalid
	}
	s.lost = false
	s.proxy.SetFrozen(false)
	for _, d := range []Direction{AToB, BToA} {
		s.proxy.SetStalled(d, false)
		s.proxy.SetDropped(d, false)
	}
	s.proxy.SetDown(false)
	s.wait()
}
