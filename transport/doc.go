// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package transport carries messages between the nodes of a cluster: the SPI
// [Carrier], and the [Transport] that stands on top of any of them.
//
//	t, err := transport.Open(carrier, transport.Config{})
//	t.Handle(kind, func(ctx context.Context, m transport.Message) { ... })
//	t.HandleRequest(kind, func(ctx context.Context, r *transport.Request) { _ = r.Reply(answer) })
//
//	err = t.Send(peer, transport.Data, kind, payload)
//	answer, err := t.Request(ctx, peer, kind, payload)
//
// A message goes to an incarnation, an identity.Node with its UID. Only what is
// said before an incarnation is known goes to a bare name: [Transport.SendToName].
//
// # Lanes
//
// [Control] is for membership and heartbeats, [Data] for entities, requests and
// replies, [Bulk] for what is large and can wait. They do not wait for each
// other.
//
// # Guarantees
//
//   - Messages of one node to one incarnation on one lane are handled in the order
//     in which they were sent, one at a time. There is no order between lanes,
//     nor between replies and what else is on the lane.
//   - A message is handled at most once. It may be lost: by the carrier, because
//     a node is gone, because there was no room. Every loss that a node can know
//     about is counted with its reason ([Transport.Stats]), and what is missing on
//     a link is reported ([Gap]).
//   - The sender that a handler sees is the one that the carrier vouches for. The UID
//     is what that sender says.
//   - Nothing waits for a slow peer or handler: a sender whose messages are not
//     consumed runs out of credit, queues up to a limit and then gets
//     [ErrBackpressure], on that link only.
//
// # Memory
//
// What waits is limited for each peer and for all together, on each lane for itself:
//
//	to be sent      Config.MaxQueue, 4 MiB, and Config.MaxQueueAll, 256 MiB
//	to be handled   Config.Window, 4 MiB, and Config.MaxInboxAll, 256 MiB
//	for bare names  1 MiB for each sender, 16 MiB for all
//
// Of messages that are put together from several frames the parts count as well. What
// a carrier's client keeps for itself comes on top.
//
// # Operators
//
// Who is no node can ask one, if the carrier is [Operable]: what it asks goes to
// [Transport.HandleAdmin], past all links, and it asks with an [Asker] of that carrier's
// package. Requests have at most [MaxAdminRequest] bytes, four are handled at a time,
// 64 wait, and more are refused with ErrBackpressure.
//
// # Caveats
//
// A handler that blocks holds up what else its sender sent on the lane; a request
// can be answered later. Payloads are not copied: one that was sent must not
// be changed, one that was received can be kept.
//
// # When something fails
//
// While the carrier is disconnected, Send and Request return [ErrDisconnected]
// and frames that are on their way are lost; nothing is kept for later. A
// request whose answer is lost ends with its context.
//
// Nobody is quarantined for not answering: see docs/decisions/0021. Who does not hear
// is found by heartbeats above the transport.
//
// How a link works, and why, is in package internal/link.
package transport
