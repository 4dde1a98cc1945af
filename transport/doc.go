// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package transport carries messages between the nodes of a cluster. A [Carrier] moves frames, and
// a [Transport] adds order, flow control, requests and quarantine on top of any carrier.
//
//	t, err := transport.Open(carrier, transport.Config{})
//	t.Handle(kind, func(ctx context.Context, m transport.Message) { ... })
//	t.HandleRequest(kind, func(ctx context.Context, r *transport.Request) { _ = r.Reply(answer) })
//
//	err = t.Send(peer, transport.Data, kind, payload)
//	answer, err := t.Request(ctx, peer, kind, payload)
//
// A message is addressed to an incarnation: an identity.Node with its UID. [Transport.SendToName]
// addresses a bare name. It serves the first steps of joining, before the incarnation is known.
//
// # Lanes
//
// [Control] is for membership and heartbeats, [Data] for entities, requests and replies, [Bulk] for
// large messages that can wait. Lanes do not wait for each other.
//
// # Guarantees
//
//   - Messages of one node to one incarnation on one lane are handled in the order in which they were
//     sent, one at a time. There is no order between lanes, nor between replies and other messages of
//     the lane.
//   - A message is handled at most once. It may be lost: by the carrier, because a node is gone, or
//     because a buffer is full. Every loss that a node can detect is counted by reason
//     ([Transport.Stats]), and gaps in a link are reported ([Gap]).
//   - The carrier proves the name of the sender that a handler receives. The UID is the sender's own
//     claim. Config.Accept decides which senders reach the handlers.
//   - A slow peer or handler delays no other peer or lane. A sender whose messages are not consumed
//     runs out of credit, queues up to a limit, and then gets [ErrBackpressure], on that link only.
//
// # Memory
//
// Messages that wait to be sent have a limit for each peer and lane (Config.MaxQueue, 4 MiB), and one
// for each lane (Config.MaxQueueAll).
//
// Received messages have a limit for each peer and lane (Config.Window, 4 MiB), and share
// Config.MemoryBudget, 256 MiB for the node. All incarnations of a name together may hold as many bytes
// as are free, hence at most half of the budget. The lane Control counts for itself, so that heartbeats
// find room. The parts of an incomplete message, the messages for
// bare names, and 256 bytes of bookkeeping for each message count as well. A message that is a small
// part of its frame is copied, so that it does not keep the frame in memory. The packages cluster,
// ddata and sharding charge the input that they keep to the same budget: see
// docs/decisions/0044-one-memory-budget.md. Buffers of the carrier's client library are additional.
//
// # Operators
//
// An operator, such as an administration tool, is not a node. It can send requests to a node if the
// carrier is an [AdminCarrier]. A request is passed to the handler of [Transport.HandleAdmin] and
// uses no link. Operators send requests with an [AdminClient] from the carrier's package. A request
// has at most [MaxAdminRequest] bytes. It is addressed to a service, and uses the right [AdminRead] or
// [AdminAct]. A carrier can restrict operators to services and rights. For each right,
// a node handles eight requests at a time and queues 64; four and 16 of them can be of the same
// operator. It rejects others with ErrBackpressure. A request ends after a minute.
//
// # Caveats
//
// A blocking handler delays all other messages of its sender on the lane; a request can be answered
// after its handler returned. Payloads are not copied: a payload must not change after it was sent,
// and a received payload belongs to the handler.
//
// # Failure handling
//
// While the carrier is disconnected, Send and Request return [ErrDisconnected] and frames in flight
// are lost. Nothing is stored for later. A request whose reply is lost ends with its context.
//
// The transport never quarantines a node for silence: see docs/decisions/0021. Heartbeats above the
// transport detect unreachable nodes.
//
// Package internal/link describes the protocol of a link.
package transport
