// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

const (
	echoKind = transport.FirstUserKind
	echoSize = 200 // bytes in each direction
)

// transports measures requests and replies between two nodes over NATS and between two connections
// of the plain client. Both use one server in this process.
func transports(ctx context.Context, b *run) (results []Result, err error) {
	s, err := embedded.Start(embedded.Config{}) //nolint:contextcheck // the server lives until Close
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, callers := range []int{64, 1000} {
		c, err := b.compare(
			func() (float64, error) { return b.rawRequests(s, callers) },
			func() (float64, error) { return b.requests(ctx, s, callers) })
		if err != nil {
			return nil, err
		}
		results = append(results, c.result(Result{
			Unit: "requests/s", Goal: 1, Better: higher,
			Settings: fmt.Sprintf("%d callers, %d bytes there and back, from one node to another; raw: nats.go, one connection on each side", callers, echoSize),
		}))
	}
	return results, nil
}

func (b *run) rawRequests(s *embedded.Server, callers int) (float64, error) {
	client, err := dial(s.Access())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	server, err := dial(s.Access())
	if err != nil {
		return 0, err
	}
	defer server.Close()
	_, err = server.Subscribe("echo", func(m *natsgo.Msg) { _ = m.Respond(m.Data) })
	if err = errors.Join(err, server.Flush()); err != nil {
		return 0, err
	}
	t, err := echoes(callers, b.settings.Length, func(_ int, payload []byte) ([]byte, error) { return rawRequest(client, "echo", payload) })
	return t.rate(), err
}

func rawRequest(conn *natsgo.Conn, subject string, payload []byte) ([]byte, error) {
	m, err := conn.Request(subject, payload, nodePatience)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

func (b *run) requests(ctx context.Context, s *embedded.Server, callers int) (rate float64, err error) {
	client, err := openNode(s, "client") //nolint:contextcheck // a carrier lives until Close
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	server, err := openNode(s, "server") //nolint:contextcheck // a carrier lives until Close
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	server.HandleRequest(echoKind, func(_ context.Context, r *transport.Request) { _ = r.Reply(r.Payload) })
	t, err := echoes(callers, b.settings.Length, func(_ int, payload []byte) ([]byte, error) {
		limited, cancel := context.WithTimeout(ctx, nodePatience)
		defer cancel()
		return client.Request(limited, server.Self(), echoKind, payload)
	})
	return t.rate(), err
}

func openNode(s *embedded.Server, name string) (*transport.Transport, error) {
	self, err := identity.New(name)
	if err != nil {
		return nil, err
	}
	carrier, err := nats.Connect(nats.Config{Access: s.Access(), Cluster: "bench", Self: self})
	if err != nil {
		return nil, err
	}
	return transport.Open(carrier, transport.Config{})
}

// echoes lets callers send requests for a time and checks the replies.
func echoes(callers int, length time.Duration, ask func(caller int, payload []byte) ([]byte, error)) (throughput, error) {
	payload := noteOf(0, echoSize)
	return together(callers, length, func(caller, _ int) error {
		got, err := ask(caller, payload)
		if err == nil && !bytes.Equal(got, payload) {
			err = fmt.Errorf("the reply has %d other bytes", len(got))
		}
		return err
	})
}
