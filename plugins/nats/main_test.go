// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a server of the test's own.
func start(tb testing.TB, cfg embedded.Config) *embedded.Server {
	tb.Helper()
	s, err := embedded.Start(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close the server: %v", err)
		}
	})
	return s
}

var uids atomic.Uint64

func node(name string) identity.Node { return identity.Node{Name: name, UID: uids.Add(1)} }

func config(s *embedded.Server, name string) nats.Config {
	return nats.Config{Access: s.Access(), Cluster: "test", Self: node(name)}
}

func connect(tb testing.TB, cfg nats.Config) *nats.Carrier {
	tb.Helper()
	c, err := nats.Connect(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func open(tb testing.TB, cfg nats.Config, tcfg transport.Config) *transport.Transport {
	tb.Helper()
	t, err := transport.Open(connect(tb, cfg), tcfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := t.Close(); err != nil {
			tb.Errorf("close the transport: %v", err)
		}
	})
	return t
}

func operator(tb testing.TB, cfg nats.OperatorConfig) *nats.Operator {
	tb.Helper()
	o, err := nats.ConnectOperator(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}
