// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package delivery sends commands to other entities until they are confirmed.
//
// An Outbox is part of the state of the sending entity, an Inbox of the receiving one. Both are
// rebuilt from the events of their entities and saved in their snapshots, so pending deliveries
// survive a crash. A receiver without an Inbox carries out duplicates.
//
//	sender                                     destination
//
//	TransferStarted is persisted
//	  Apply: Outbox.Deliver
//	... and when it is durable
//	      ------------ Credit 7 ------------>  Inbox.Seen? no
//	                                           Credited is persisted
//	                                             Apply: Inbox.Record
//	                 x---- reply ------------  ... and when it is durable
//	an interval later
//	      ------------ Credit 7 ------------>  Inbox.Seen? yes
//	      <----------- reply ---------------
//	signal Answered
//	TransferCompleted is persisted
//	  Apply: Outbox.Confirm
//
// The sender declares its outbox with Sends, the destination its command with On:
//
//	Commands: eventsourcing.Commands(delivery.On("credit", (*Account).credits, (*Account).credit)),
//	Parts:    eventsourcing.Parts(delivery.Sends("Transfers", (*Account).transfers, (*Account).answered)),
//
//	// in Apply of the sender
//	case TransferStarted:
//		a.Balance -= e.Amount
//		a.Transfers.Deliver(eventsourcing.Address{Type: "account", ID: e.To}, Credit{Amount: e.Amount})
//	case TransferCompleted:
//		a.Transfers.Confirm(e.Nr)
//
//	// in Apply of the destination
//	case Credited:
//		a.Credits.Record(e.Header)
//	case CreditRefused:
//		a.Credits.RecordRefusal(e.Header, ErrClosed)
//
// # Guarantees
//
//   - A message is sent when the event that delivers it is durable. It is sent again after each
//     recovery, and one interval after the last transmission, until an event confirms it.
//   - Each outbox numbers its deliveries 1, 2, 3 and so on, in the order of its events. A recovered
//     state has the same numbers, if each release calls Deliver and Confirm for the stored events as the
//     release did that stored them. With other numbers, a receiver would take a new delivery for an old
//     one, or the reverse. So do not remove such events with codec.Removed, and do not change what Apply
//     delivers for them. A recovery fails if events confirm a number that is not assigned. It does not
//     detect other changes of the numbers.
//   - A destination that handles the command with On, and calls Record in Apply, carries out each
//     delivery exactly once.
//   - A sender receives answers to a delivery until it has confirmed the delivery, and none
//     afterwards. Only a decision of the destination counts as an answer; a failed write, a stopped
//     entity or an unknown command does not.
//   - The destination is looked up at each transmission. It may be created later, move to another
//     node, or be unavailable for some time.
//   - A destination is an entity of the sender's runtime, of a region or a proxy of its cluster node
//     (also one with another runtime), or of a runtime that was passed to Runtime.Connect. A delivery
//     to another type is sent again until the type appears. The log reports each attempt, and the
//     signal Unconfirmed has the error, which matches eventsourcing.ErrUnknownType.
//
// # Caveats
//
//   - If a refused delivery could be accepted later, the destination must persist an event for the
//     refusal and call RecordRefusal in its Apply. Otherwise a late copy of the message could be
//     carried out after the sender has acted on the refusal.
//   - Messages can arrive out of order when one of them is sent again.
//   - A sender that is not in memory sends nothing. An entity with unconfirmed deliveries is not
//     stopped when it is idle. After a crash, a cluster starts such entities by itself, see
//     sharding.Options.Wake; a program on one node calls eventsourcing.Entities.Wake at its start.
//   - Receivers identify a delivery by the persistence ID of the sender, the name given to Sends,
//     and the number. After a rename, unconfirmed deliveries are carried out again.
//   - The outboxes of one entity type must have different message types.
//   - If an outbox restarts at number 1, receivers treat its deliveries as duplicates. This happens
//     after events were deleted without a snapshot, or with Recovery.Disabled.
//   - An Inbox keeps a record of every sender without a time limit; see Inbox.Forget.
//   - Messages are shared by all transmissions, so neither the sender nor the destination may
//     change the memory that they refer to.
package delivery
