// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"context"
	"fmt"
	"slices"

	"github.com/refold-io/refold/transport"
)

// ServeAdmin implements transport.AdminCarrier.
func (c *Carrier) ServeAdmin(take func(transport.AdminRequest)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errCarrierClosed
	}
	c.take = take
	return nil
}

// operated passes a request to the carrier if it accepts any.
func (c *Carrier) operated(r transport.AdminRequest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.take == nil {
		return false
	}
	c.take(r)
	return true
}

// Operator returns an operator on the network. Faults do not affect its requests. Disconnected and
// paused nodes do not reply.
func (n *Network) Operator(name string) transport.AdminClient {
	return &operator{network: n, name: name}
}

// operator implements transport.AdminClient.
type operator struct {
	network *Network
	name    string
}

// Ask implements transport.AdminClient.
func (o *operator) Ask(ctx context.Context, node string, request []byte) ([]byte, error) {
	if len(request) > transport.MaxAdminRequest {
		return nil, fmt.Errorf("%w: %d bytes", transport.ErrTooLarge, len(request))
	}
	type answer struct {
		payload []byte
		err     error
	}
	answered := make(chan answer, 1)
	for _, c := range o.network.named(node) {
		taken := c.operated(transport.AdminRequest{
			Operator: o.name, Payload: slices.Clone(request),
			Reply: func(payload []byte, err error) { answered <- answer{payload, err} },
		})
		if !taken {
			continue
		}
		select {
		case a := <-answered:
			return a.payload, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("inmem: ask %v: %w", c.self, context.Cause(ctx))
		}
	}
	return nil, fmt.Errorf("%w: no node %q", transport.ErrNoNode, node)
}

// Close implements transport.AdminClient.
func (o *operator) Close() error { return nil }

// named returns the carriers with a name, or all for an empty name, in order, that can reply.
func (n *Network) named(name string) []*Carrier {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*Carrier
	for node, c := range n.carriers {
		if (name == "" || node.Name == name) && n.away[node.Name] == nil && n.paused[node.Name] == nil {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *Carrier) int { return a.self.Compare(b.self) })
	return found
}
