// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// The kinds of raw requests.
const (
	wayBare      = "nats.go"   // the plain client
	wayTransport = "transport" // the transport of the nodes
)

// answer makes this process answer raw requests of the plain client.
func (s *dataServer) answer() (dataAnswer, error) {
	conn, err := s.bare()
	if err != nil {
		return dataAnswer{}, err
	}
	if _, err = conn.Subscribe(rawSubject(s.node.Self()), func(m *natsgo.Msg) { _ = m.Respond(answerTo(m.Data)) }); err != nil {
		return dataAnswer{}, err
	}
	return dataAnswer{}, conn.Flush()
}

func rawSubject(n identity.Node) string { return "raw." + n.Name }

// bare is the connection of the plain client.
func (s *dataServer) bare() (conn *natsgo.Conn, err error) {
	if s.conn == nil {
		s.conn, err = dial(s.access)
	}
	return s.conn, err
}

// answerRaw answers a raw request over the transport.
func answerRaw(_ context.Context, q *transport.Request) { _ = q.Reply(answerTo(q.Payload)) }

// answerTo returns a reply of the size that the request contains.
func answerTo(request []byte) []byte {
	n := 0
	if len(request) > 0 {
		n = min(int(request[0]), len(request))
	}
	return request[:n]
}

// raw lets callers send requests to as many peers as a majority needs and wait for all replies.
func (s *dataServer) raw(ctx context.Context, o *dataOrder) (dataAnswer, error) {
	peers := s.node.Members()
	nodes := make([]identity.Node, 0, len(peers))
	for i := range peers {
		nodes = append(nodes, peers[i].Node)
	}
	nodes = slices.DeleteFunc(nodes, func(n identity.Node) bool { return n == s.node.Self() })
	if len(nodes) < o.Count {
		return dataAnswer{}, fmt.Errorf("%d peers, %d are needed", len(nodes), o.Count)
	}
	request, failed := s.requests(o.Way)
	if failed != nil {
		return dataAnswer{}, failed
	}
	payload := make([]byte, max(o.Size, o.Answer))
	payload[0] = byte(o.Answer) //nolint:gosec // an acknowledgement is short
	rngs := randoms(dataCallers)
	c, err := together(dataCallers, o.Length, func(caller, _ int) error {
		limited, cancel := context.WithTimeout(ctx, dataTimeout)
		defer cancel()
		first := rngs[caller].IntN(len(nodes))
		ask := func(i int) error {
			got, err := request(limited, nodes[(first+i)%len(nodes)], payload)
			if err == nil && len(got) != o.Answer {
				err = fmt.Errorf("%d bytes came back", len(got))
			}
			return err
		}
		errs := make(chan error, o.Count)
		for i := 1; i < o.Count; i++ {
			go func() { errs <- ask(i) }()
		}
		errs <- ask(0)
		var err error
		for range o.Count {
			if e := <-errs; e != nil {
				err = e
			}
		}
		return err
	})
	return dataAnswer{Ops: c.ops, Took: c.elapsed}, err
}

// requests returns a function that sends a request and waits for the reply.
func (s *dataServer) requests(way string) (func(context.Context, identity.Node, []byte) ([]byte, error), error) {
	if way == wayTransport {
		return func(ctx context.Context, to identity.Node, payload []byte) ([]byte, error) {
			return s.node.Transport().Request(ctx, to, echoKind, payload)
		}, nil
	}
	conn, err := s.bare()
	return func(_ context.Context, to identity.Node, payload []byte) ([]byte, error) {
		m, failed := conn.Request(rawSubject(to), payload, echoTimeout)
		if failed != nil {
			return nil, failed
		}
		return m.Data, nil
	}, err
}
