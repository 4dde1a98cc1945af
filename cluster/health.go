// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/refold-io/refold/internal/probe"
)

// stuckAfter is how long the loop may be blocked before Live reports an error.
const stuckAfter = 30 * time.Second

var errStuck = errors.New("cluster: the event loop is blocked")

// Live returns an error if the process should be restarted: the node has ended or was downed, or
// its event loop has been blocked for 30 seconds. It does not block.
func (n *Node) Live() error {
	if err := n.Err(); err != nil {
		return err
	}
	s := n.events.current()
	idle := n.now() - time.Duration(n.lastTurn.Load())
	if !s.Stopped && idle > stuckAfter {
		return fmt.Errorf("%w for %v", errStuck, idle.Truncate(time.Second))
	}
	return nil
}

// Ready returns nil if the node can serve requests: it is Up or WeaklyUp, connected, and not
// shutting down. It does not block.
func (n *Node) Ready() error {
	s := n.events.current()
	if err := n.Err(); err != nil {
		return err
	}
	select {
	case <-n.stopped:
		return n.shuttingDown()
	default:
	}
	switch status := s.Status(n.self); {
	case s.Stopped:
		return s.Err
	case !s.Joined:
		return fmt.Errorf("%w yet: %v", ErrNotMember, n.self)
	case !s.Connected:
		return fmt.Errorf("%w: %v does not receive its own heartbeats", ErrDisconnected, n.self)
	case s.Suspended:
		return fmt.Errorf("%w: %v is suspended: waiting for a downing decision or for confirmation of its membership", ErrDisconnected, n.self)
	case status != Up && status != WeaklyUp && status != PreparingForShutdown && status != ReadyForShutdown:
		return fmt.Errorf("cluster: %v is %v", n.self, status)
	}
	return nil
}

// Health returns an HTTP handler for probes: GET /live and GET /ready respond with status 200, or
// with 503 and the reason. The node is ready if Ready and all given checks return nil. The checks
// must not block.
func (n *Node) Health(ready ...func() error) http.Handler {
	return probe.Health(n.Live, append([]func() error{n.Ready}, ready...)...)
}
