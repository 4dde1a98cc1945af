// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	kindA transport.Kind = transport.FirstUserKind + iota
	kindB
	kindSilent
)

// cluster is a network with its nodes.
type cluster struct {
	t       *testing.T
	network *inmem.Network
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t: t, network: inmem.NewNetwork(inmem.NetworkConfig{})}
}

func (c *cluster) open(name string, cfg transport.Config) *transport.Transport {
	c.t.Helper()
	node, err := identity.New(name)
	if err != nil {
		c.t.Fatal(err)
	}
	tr, err := transport.Open(c.network.Carrier(node), cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			c.t.Errorf("Close: %v", err)
		}
	})
	return tr
}

// mailbox stores the messages of a handler.
type mailbox struct {
	mu      sync.Mutex
	got     []transport.Message
	arrived chan struct{} // signals a new message
}

func newMailbox() *mailbox { return &mailbox{arrived: make(chan struct{}, 1)} }

func (m *mailbox) handle(_ context.Context, msg transport.Message) {
	m.mu.Lock()
	m.got = append(m.got, msg)
	m.mu.Unlock()
	select {
	case m.arrived <- struct{}{}:
	default:
	}
}

func (m *mailbox) all() []transport.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]transport.Message(nil), m.got...)
}

// wait waits for n messages and returns all that have arrived.
func (m *mailbox) wait(t *testing.T, n int) []transport.Message {
	t.Helper()
	for {
		if got := m.all(); len(got) >= n {
			return got
		}
		select {
		case <-m.arrived:
		case <-t.Context().Done():
			t.Fatalf("%d of %d messages arrived", len(m.all()), n)
		}
	}
}

func send(t *testing.T, from, to *transport.Transport, lane transport.Lane, payload string) {
	t.Helper()
	if err := from.Send(to.Self(), lane, kindA, []byte(payload)); err != nil {
		t.Fatalf("Send: %v", err)
	}
}
