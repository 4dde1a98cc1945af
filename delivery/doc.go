// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package delivery sends commands to other entities until they are confirmed.
//
// An Outbox is part of the state of the sending entity, an Inbox of the receiving one. Both are
// rebuilt from the events of their entities and saved in their snapshots, so pending deliveries
// survive a crash. A receiver without an Inbox sees duplicates.
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
//   - A message is sent only when the event that delivers it is durable, and then repeatedly until an event
//     confirms it: when that event is stored, after each recovery, and one interval after the last
//     transmission.
//   - Deliveries are numbered 1, 2, 3 and so on for each outbox, in the order of its events. A recovered
//     state has the same numbers.
//   - A destination that handles the command with On, and calls Record in Apply, carries each delivery out
//     once.
//   - An entity sees an answer to a delivery until it has confirmed the delivery, and none afterwards. Only
//     a decision of the destination is an answer; a failed write, a stopped entity or an unknown command
//     is not.
//   - The destination is looked up at each transmission: it may be created, move and return.
//
// # Caveats
//
//   - A refusal has to be an event of the destination too, with RecordRefusal, if the same delivery could
//     be accepted later. Otherwise a copy of the message that arrives late could be carried out although
//     the sender has acted on the refusal.
//   - The order of messages is not kept once a message is sent again.
//   - A sender that is not in memory sends nothing. Any command starts it, and so does
//     eventsourcing.Entities.Wake, which a program calls when it starts. An entity with unconfirmed
//     deliveries is not stopped for being idle.
//   - The name given to Sends and the persistence ID are part of what receivers remember: after a rename
//     unconfirmed deliveries are carried out again.
//   - Two outboxes of one type have different message types.
//   - An outbox that restarts at number 1 has its deliveries taken for duplicates: after events were
//     deleted without a snapshot, or with Recovery.Disabled.
//   - An Inbox keeps a record of every sender without a time limit; see Inbox.
//   - Messages are shared by all transmissions, so neither the sender nor the destination may change the
//     memory that they refer to.
package delivery
