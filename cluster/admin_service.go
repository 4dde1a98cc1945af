// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/refold-io/refold/transport"
)

var errNoService = errors.New("this node has no such service")

// adminServices are who answers operators about what stands on this package.
type adminServices struct {
	mu sync.RWMutex
	by map[string]transport.AdminHandler
}

// of returns who answers a request, nil if that is this package.
func (s *adminServices) of(request []byte) (transport.AdminHandler, error) {
	var to struct {
		Service string `json:"service"`
	}
	if json.Unmarshal(request, &to) != nil || to.Service == "" {
		return nil, nil //nolint:nilnil // the rest is checked by this package
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.by[to.Service]; h != nil {
		return h, nil
	}
	return nil, invalid("%w: %.100q", errNoService, to.Service)
}

// HandleAdmin sets who answers those requests of operators that are JSON objects with this name in a field "service", in place
// of an earlier handler; nil answers none. It is for packages that stand on this one. An answer is a JSON object, which says in a
// field "error" what has gone wrong. Operators reach a node once it is a member.
func (n *Node) HandleAdmin(service string, h transport.AdminHandler) {
	n.services.mu.Lock()
	defer n.services.mu.Unlock()
	if n.services.by == nil {
		n.services.by = map[string]transport.AdminHandler{}
	}
	n.services.by[service] = h
}
