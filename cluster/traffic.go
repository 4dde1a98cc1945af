// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/transport"
)

// silent are the kinds that are not answered with a notice of quarantine: heartbeats, and the notice itself.
var silent = []transport.Kind{ //nolint:gochecknoglobals // constant
	transport.Kind(membership.KindHeartbeat), transport.Kind(membership.KindHeartbeatReply),
	transport.Kind(membership.KindEcho), transport.Kind(membership.KindQuarantined),
}

// listen takes the messages of the protocols from the transport.
func (n *Node) listen() {
	for kind := membership.KindInitJoin; kind < membership.Kinds; kind++ {
		switch kind {
		case membership.KindInitJoin, membership.KindJoin, membership.KindPing:
			n.transport.HandleNamed(transport.Kind(kind), n.receive(identity.Node{Name: n.self.Name}, node.Kind(kind)))
		default:
			n.transport.Handle(transport.Kind(kind), n.receive(n.self, node.Kind(kind)))
		}
	}
	n.transport.Handle(transport.Kind(node.KindSingleton), n.receive(n.self, node.KindSingleton))
	n.transport.Handle(kindForwarded, n.hosts.message)
	n.transport.HandleRequest(kindForwarded, n.hosts.request)
}

// receive returns a handler that leaves a message to the loop.
func (n *Node) receive(to identity.Node, kind node.Kind) transport.Handler {
	return func(_ context.Context, m transport.Message) {
		if m.Lane != transport.Control {
			return
		}
		if !n.inputs.receive(node.Received{From: m.From, To: to, Kind: kind, Arrived: n.now(), Data: m.Payload}) {
			n.dropped(DroppedInput, m.From, "")
		}
	}
}

// heard returns what is told what happens to the transport.
func (n *Node) heard(next func(transport.Event)) func(transport.Event) {
	notice := membership.AppendMessage(nil, membership.Quarantined{})
	return func(e transport.Event) {
		switch e := e.(type) {
		case transport.Connection:
			if e.Err != nil {
				n.inputs.add(node.Membership{Input: membership.LinkLost{}})
			} else {
				n.inputs.add(node.Membership{Input: membership.LinkRestored{}})
			}
		case transport.QuarantinedBy:
			in := node.Received{From: e.From, To: n.self, Kind: node.Kind(membership.KindQuarantined), Arrived: n.now(), Data: notice}
			if !n.inputs.receive(in) {
				n.dropped(DroppedInput, e.From, "")
			}
		case transport.Gap:
		}
		if next != nil {
			n.outlet.add(func() { next(e) })
		}
	}
}

// complainEvery is how often at most it is said that messages can't be sent.
const complainEvery = time.Second

// send sends a message of a protocol. They all bear that it is lost.
func (n *Node) send(s node.Send) {
	var err error
	if s.To.UID == 0 {
		err = n.transport.SendToName(s.To.Name, transport.Kind(s.Kind), s.Data)
	} else {
		err = n.transport.Send(s.To, transport.Control, transport.Kind(s.Kind), s.Data)
	}
	switch {
	case err == nil, errors.Is(err, transport.ErrDisconnected), errors.Is(err, transport.ErrQuarantined), errors.Is(err, transport.ErrClosed):
		// Those who are quarantined are told by the transport itself.
	default:
		n.dropped(DroppedSend, s.To, "")
		now := n.now()
		if now < n.complain {
			return
		}
		n.complain = now + complainEvery
		n.outlet.write(slog.LevelWarn, "a message can't be sent", slog.String("to", s.To.String()), slog.Int("kind", int(s.Kind)), slog.Any("error", err))
	}
}
