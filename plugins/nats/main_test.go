// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/freeport"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

func TestMain(m *testing.M) {
	natstest.RunIfServer()
	goleak.VerifyTestMain(m)
}

// patience is the time-out of all waits. It is long because the machine may be busy.
const patience = 2 * time.Minute

// try starts a server with long time-outs for its clients.
func try(cfg embedded.Config) (*embedded.Server, error) {
	configure := cfg.Configure
	cfg.StartTimeout = patience
	cfg.Configure = func(o *server.Options) {
		o.AuthTimeout = patience.Seconds()
		if configure != nil {
			configure(o)
		}
	}
	return embedded.Start(cfg)
}

// start starts a server for one test.
func start(tb testing.TB, cfg embedded.Config) *embedded.Server {
	tb.Helper()
	s, err := try(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return closing(tb, s)
}

// closing closes a server at the end of the test.
func closing(tb testing.TB, s *embedded.Server) *embedded.Server {
	tb.Helper()
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close the server: %v", err)
		}
	})
	return s
}

// startLasting returns a server that can be restarted at its port. While the server is stopped,
// another process gets the port only if it requests this port number.
func startLasting(t *testing.T, dir string) (*embedded.Server, int) {
	t.Helper()
	for {
		port, err := freeport.Find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := try(embedded.Config{Dir: dir, Port: port})
		switch {
		case err == nil:
			return closing(t, s), port
		case !errors.Is(err, syscall.EADDRINUSE): // another process took the port
			t.Fatal(err)
		}
	}
}

var uids atomic.Uint64

func node(name string) identity.Node { return identity.Node{Name: name, UID: uids.Add(1)} }

// accessTo returns the access to a server, with a long time-out.
func accessTo(s *embedded.Server) nats.Access {
	a := s.Access()
	a.ConnectTimeout = patience
	return a
}

func config(s *embedded.Server, name string) nats.Config {
	return nats.Config{Access: accessTo(s), Cluster: "test", Self: node(name)}
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
