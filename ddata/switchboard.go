// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/transport"
)

// kind is that of all messages of all replicators: a packet says for which one it is.
const kind = transport.FirstReplicationKind

// switchboard leads packets to the replicators of a node. There is one for each node.
type switchboard struct {
	mu      sync.RWMutex
	byName  map[string]*Replicator
	unknown atomic.Uint64 // packets for none
}

type switchboardKey struct{}

// switchboardOf returns that of a node.
func switchboardOf(node *cluster.Node) *switchboard {
	s, _ := node.Attached(switchboardKey{}, func() any {
		s := &switchboard{byName: map[string]*Replicator{}}
		node.Transport().Handle(kind, s.receive)
		node.HandleAdmin(AdminService, s.admin)
		return s
	}).(*switchboard)
	return s
}

// add lets packets come to a replicator.
func (s *switchboard) add(r *Replicator) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[r.cfg.Name] != nil {
		return fmt.Errorf("Config.Name is %q, and there is a replicator with that name on this node", r.cfg.Name)
	}
	s.byName[r.cfg.Name] = r
	return nil
}

func (s *switchboard) remove(r *Replicator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[r.cfg.Name] == r {
		delete(s.byName, r.cfg.Name)
	}
}

// receive hands a packet to the replicator that it is for. Others are dropped: the replicator of that name is not there yet, or
// no more.
func (s *switchboard) receive(ctx context.Context, m transport.Message) {
	name, ok := replica.NameOf(m.Payload)
	s.mu.RLock()
	r := s.byName[string(name)]
	s.mu.RUnlock()
	if !ok || r == nil {
		s.unknown.Add(1)
		return
	}
	r.inbox.receive(ctx, replica.Packet{From: m.From, Payload: m.Payload})
}
