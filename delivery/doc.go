// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package delivery redelivers until confirmed; a receiver without an Inbox sees
// duplicates.
//
// An Outbox is part of the state of the aggregate that delivers, an Inbox of the
// one that receives. Both are folded from the aggregates' own events and saved in
// their snapshots, so what is on its way survives any crash.
//
//	sender                                     destination
//
//	TransferStarted is persisted
//	  ApplyEvent: Outbox.Deliver
//	... and when it is durable
//	      ------------ Credit 7 ------------>  Inbox.Seen? no
//	                                           Credited is persisted
//	                                             ApplyEvent: Inbox.Record
//	                 x---- answer -----------  ... and when it is durable
//	an interval later
//	      ------------ Credit 7 ------------>  Inbox.Seen? yes
//	      <----------- answer --------------
//	HandleSignal: Answered
//	TransferCompleted is persisted
//	  ApplyEvent: Outbox.Confirm
//
// The sender:
//
//	type Account struct {
//		Balance   int
//		Transfers delivery.Outbox[Credit]
//		Credits   delivery.Inbox
//	}
//
//	// in ApplyEvent
//	case TransferStarted:
//		a.Balance -= e.Amount
//		a.Transfers.Deliver(eventsourcing.Address{Type: "account", ID: e.To}, Credit{Amount: e.Amount})
//	case TransferCompleted:
//		a.Transfers.Confirm(e.Nr)
//
//	// in HandleSignal
//	case delivery.Answered[Credit]:
//		if s.Err != nil {
//			return ctx.Persist(TransferRefunded{Nr: s.Nr, Amount: s.Message.Amount})
//		}
//		return ctx.Persist(TransferCompleted{Nr: s.Nr})
//
// The destination, here of the same type:
//
//	// in HandleCommand
//	case Credit:
//		if a.Credits.Seen(c.Header) {
//			if refusal := a.Credits.Refusal(c.Header); refusal != nil {
//				return ctx.Refuse(refusal)
//			}
//			return ctx.Reply(c.With(a.Balance))
//		}
//		if a.Closed {
//			return ctx.Persist(CreditRefused{c.Header}).Refuse(ErrClosed)
//		}
//		return ctx.Persist(Credited{c.Header, c.Amount}).Reply(...)
//
//	// in ApplyEvent
//	case Credited:
//		a.Credits.Record(e.Header)
//	case CreditRefused:
//		a.Credits.RecordRefusal(e.Header, ErrClosed)
//
// # Guarantees
//
//   - A message leaves only when the event that delivers it is durable; and then
//     again and again, until an event confirms it. It is sent when that event is
//     stored, after each recovery, and when the last transmission is an interval
//     ago.
//   - Deliveries are numbered 1, 2, 3 and so on for each outbox, in the order of
//     its events. A refolded aggregate gives the same numbers.
//   - A destination that persists its decision and calls Record in ApplyEvent, and
//     asks Seen before it decides, carries each delivery out once.
//   - An aggregate sees an answer to a delivery until it has confirmed it, and none
//     afterwards. Only a decision of the destination counts as an answer; a failed
//     write, a stopped entity or an unknown command does not.
//   - The destination is looked up at each transmission: it may be created, move
//     and come back.
//
// # Caveats
//
//   - A refusal has to be an event of the destination too, with RecordRefusal, if
//     the same delivery could be accepted later. Otherwise: the first transmission
//     is refused, then the destination changes, then the second transmission,
//     which was on its way already, is carried out, while the sender has acted on
//     the refusal.
//   - Order is not kept once anything is sent again.
//   - A sender that is not in memory sends nothing. It starts sending again when it
//     is started by any command, or by eventsourcing.Entities.Wake, which a program
//     calls when it comes up. An entity that has some is not stopped for
//     being idle.
//   - The name of the outbox's field and the persistence ID are part of what
//     receivers remember: a field that is renamed has its unconfirmed deliveries
//     carried out again.
//   - An outbox that begins again at number 1 has its deliveries taken for
//     duplicates: when events were deleted without a snapshot, or with
//     Recovery.Disabled.
//   - An Inbox keeps something about every sender for ever; see there.
//   - Destinations must not use eventsourcing.OverflowReply: its answer looks like
//     that of the aggregate.
//   - Messages are shared by all transmissions, so neither the sender nor the
//     destination may change what they refer to.
package delivery
