// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/transport"
)

// kind is the kind of all messages of all replicators. A packet contains the name of its
// replicator.
const kind = transport.FirstReplicationKind

// router passes packets to the replicators of a node. Each node has one.
type router struct {
	mu      sync.RWMutex
	byName  map[string]*Replicator
	ended   map[string]error // reasons of the replicators that have ended
	unknown atomic.Uint64    // packets without a running replicator
}

type routerKey struct{}

func routerOf(node *cluster.Node) *router {
	s, _ := node.Attached(routerKey{}, func() any {
		s := &router{byName: map[string]*Replicator{}, ended: map[string]error{}}
		node.Transport().Handle(kind, s.receive)
		admin := newAdminService()
		node.HandleAdmin(adminService, admin.Commands, adminrpc.Serve(admin, s.handleAdmin))
		return s
	}).(*router)
	return s
}

// add registers a replicator. A replicator numbers its changes from 1, and other nodes recognize
// known changes by their numbers. A name can therefore be used only once in the lifetime of a node.
func (s *router) add(r *Replicator) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[r.cfg.Name] != nil {
		return fmt.Errorf("%w: Config.Name is %q, which is in use by another replicator of this node", ErrInvalid, r.cfg.Name)
	}
	if why, ended := s.ended[r.cfg.Name]; ended {
		return fmt.Errorf("%w: Config.Name is %q, which belongs to a replicator that has ended on this node (%w): restart the node", ErrInvalid, r.cfg.Name, why)
	}
	s.byName[r.cfg.Name] = r
	return nil
}

func (s *router) remove(r *Replicator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, r.cfg.Name)
	if why := r.cause(); why != nil { // the replicator has run
		s.ended[r.cfg.Name] = why
	}
}

// receive passes a packet to its replicator. It drops the packet if the replicator has not started
// or has ended.
func (s *router) receive(ctx context.Context, m transport.Message) {
	name, ok := replication.NameOf(m.Payload)
	s.mu.RLock()
	r := s.byName[string(name)]
	s.mu.RUnlock()
	if !ok || r == nil || !r.running.Load() { // packets that wait while a store is loaded would block the sender
		s.unknown.Add(1)
		return
	}
	waiting := r.inbox.packets
	if m.Lane == transport.Bulk {
		waiting = r.inbox.bulk
	}
	// A packet is lost if the replicator or the transport ends while it waits.
	_ = waiting.Receive(ctx, 0, len(m.Payload), replication.Packet{From: m.From, Payload: m.Payload})
}
