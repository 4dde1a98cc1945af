// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

const (
	echoKind = transport.FirstUserKind
	echoSize = 200 // bytes in each direction
	// echoTimeout is the time-out of a request.
	echoTimeout = nodePatience
)

// transports measures requests and replies between two nodes over NATS and between two connections
// of the plain client. Both use one server in this process.
func transports(ctx context.Context, b *run) (results []Result, err error) {
	s, err := embedded.Start(embedded.Config{}) //nolint:contextcheck // the server lives until Close
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	payload := newNotes().bytes(0, echoSize)
	for _, callers := range []int{64, 1000} {
		raw, refold, err := b.alternate(
			func() (float64, error) { return b.rawRequests(s, callers, payload) },
			func() (float64, error) { return b.requests(ctx, s, callers, payload) })
		if err != nil {
			return nil, err
		}
		limit, value := median(raw), median(refold)
		results = append(results, Result{
			Value: value, Unit: "requests/s", Limit: limit, Ratio: value / limit, Goal: 1, Better: higher,
			Settings: fmt.Sprintf("%d callers, %d bytes there and back, from one node to another; raw: nats.go, one connection on each side", callers, echoSize),
		}.judge())
	}
	return results, nil
}

// rawRequests returns the requests per second of the NATS client.
func (b *run) rawRequests(s *embedded.Server, callers int, payload []byte) (float64, error) {
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
	if _, err := server.Subscribe("echo", func(m *natsgo.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return 0, err
	}
	if err := server.Flush(); err != nil {
		return 0, err
	}
	return b.echoes(callers, payload, func() ([]byte, error) {
		m, err := client.Request("echo", payload, echoTimeout)
		if err != nil {
			return nil, err
		}
		return m.Data, nil
	})
}

// requests returns the requests per second from one node to another.
func (b *run) requests(ctx context.Context, s *embedded.Server, callers int, payload []byte) (rate float64, err error) {
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
	return b.echoes(callers, payload, func() ([]byte, error) {
		limited, cancel := context.WithTimeout(ctx, echoTimeout)
		defer cancel()
		return client.Request(limited, server.Self(), echoKind, payload)
	})
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

// echoes lets callers send requests and checks the replies.
func (b *run) echoes(callers int, payload []byte, ask func() ([]byte, error)) (float64, error) {
	c, err := together(callers, b.settings.Length, func(int, int) error {
		got, err := ask()
		if err == nil && !bytes.Equal(got, payload) {
			err = fmt.Errorf("%d other bytes came back", len(got))
		}
		return err
	})
	return c.rate(), err
}
