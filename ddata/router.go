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
type router struct {
	mu      sync.RWMutex
	byName  map[string]*Replicator
	ended   map[string]error // why those did that have run and do no more
	unknown atomic.Uint64    // packets for none
}

type routerKey struct{}

// routerOf returns that of a node.
func routerOf(node *cluster.Node) *router {
	s, _ := node.Attached(routerKey{}, func() any {
		s := &router{byName: map[string]*Replicator{}, ended: map[string]error{}}
		node.Transport().Handle(kind, s.receive)
		node.HandleAdmin(AdminService, s.serveAdmin)
		return s
	}).(*router)
	return s
}

// add lets packets come to a replicator. What changes values on a node numbers its changes from one on, and the others tell a
// change that they know from a new one by that. So there is one replicator of a name in the life of a node, and not a second one
// that begins anew.
func (s *router) add(r *Replicator) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[r.cfg.Name] != nil {
		return fmt.Errorf("Config.Name is %q, and there is a replicator with that name on this node", r.cfg.Name)
	}
	if why, ended := s.ended[r.cfg.Name]; ended {
		return fmt.Errorf("Config.Name is %q, and a replicator with that name has ended on this node (%w): the others would take what a second one changes "+
			"for what they have of the first; start the node anew", r.cfg.Name, why)
	}
	s.byName[r.cfg.Name] = r
	return nil
}

// withdraw removes a replicator that has never run.
func (s *router) discard(r *Replicator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, r.cfg.Name)
}

// remove removes a replicator that has ended.
func (s *router) remove(r *Replicator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, r.cfg.Name)
	s.ended[r.cfg.Name] = r.cause()
}

// receive hands a packet to the replicator that it is for. Others are dropped: the replicator of that name is not there yet, or
// no more.
func (s *router) receive(ctx context.Context, m transport.Message) {
	name, ok := replica.NameOf(m.Payload)
	s.mu.RLock()
	r := s.byName[string(name)]
	s.mu.RUnlock()
	if !ok || r == nil {
		s.unknown.Add(1)
		return
	}
	r.inbox.receive(ctx, replica.Packet{From: m.From, Payload: m.Payload}, m.Lane == transport.Bulk)
}
