// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/journal"
)

// transferID names a transfer: the account that it left, and its number there.
type transferID struct {
	from   string
	number uint64
}

// transferBooks are the events of one transfer, on both sides.
type transferBooks struct {
	to                                             string
	started, credited, turned, completed, refunded []transferEntry
	pending                                        []money.Amount // as its source answers
}

// transferEntry is one event. The amount is in the currency that was debited.
type transferEntry struct {
	ref    eventRef
	amount money.Amount
	code   string // why it was refused
}

func (a *auditor) transfer(id transferID) *transferBooks {
	t := a.transfers[id]
	if t == nil {
		t = &transferBooks{}
		a.transfers[id] = t
	}
	return t
}

// pending enters a transfer of which an account says that it has not ended.
func (a *auditor) pending(from string, p Pending) {
	t := a.transfer(transferID{from, p.Transfer})
	t.pending = append(t.pending, p.Amount)
}

// checkSender checks that a credit names one source, and names it twice.
func (a *auditor) checkSender(from, sender string, ref eventRef) {
	if want := journal.JoinID(AccountTypeName, from) + "#Transfers"; sender != want {
		a.violate("transfer", fmt.Sprintf("a credit from %s was delivered by %q", from, sender), ref)
	}
}

// closeTransfers checks each transfer, now that both sides are known.
func (a *auditor) closeTransfers() {
	ids := slices.SortedFunc(maps.Keys(a.transfers), func(x, y transferID) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.number, y.number))
	})
	for _, id := range ids {
		a.closeTransfer(id, a.transfers[id])
	}
}

func (a *auditor) closeTransfer(id transferID, t *transferBooks) {
	violate := func(format string, args ...any) {
		var refs []eventRef
		for _, e := range slices.Concat(t.started, t.turned, t.credited, t.completed, t.refunded) {
			refs = append(refs, e.ref)
		}
		a.violate("transfer", fmt.Sprintf("transfer %d of %s ", id.number, id.from)+fmt.Sprintf(format, args...), refs...)
	}
	if len(t.started) == 0 {
		switch {
		case len(t.credited) > 0:
			violate("was credited and never debited")
		case len(t.pending) > 0:
			violate("is pending and never began")
		default:
			violate("was ended and never began")
		}
		return
	}
	start := t.started[0]
	for _, step := range []struct {
		name    string
		entries []transferEntry
	}{{"debited", t.started}, {"credited", t.credited}, {"turned away", t.turned}, {"completed", t.completed}, {"refunded", t.refunded}} {
		if n := len(step.entries); n > 1 {
			violate("was %s %d times", step.name, n)
		}
		for _, e := range step.entries {
			if e.amount != start.amount {
				violate("was debited with %v and %s with %v", start.amount, step.name, e.amount)
			}
		}
	}
	for _, e := range slices.Concat(t.credited, t.turned) {
		if e.ref.account != t.to {
			violate("went to %s and reached %s", t.to, e.ref.account)
		}
	}
	a.closeState(t, violate)
}

// closeState checks that a transfer is in exactly one state.
func (a *auditor) closeState(t *transferBooks, violate func(string, ...any)) {
	credited, turned := len(t.credited) > 0, len(t.turned) > 0
	completed, refunded := len(t.completed) > 0, len(t.refunded) > 0
	switch {
	case credited && turned:
		violate("was credited and turned away")
	case credited && refunded:
		violate("was credited and refunded")
	case completed && refunded:
		violate("was completed and refunded")
	case completed && !credited:
		violate("was completed and never credited")
	case refunded && !turned:
		violate("was refunded and never turned away")
	}
	if refunded && turned && t.refunded[0].code != t.turned[0].code {
		violate("was turned away for %s and refunded for %s", t.turned[0].code, t.refunded[0].code)
	}
	switch {
	case completed:
		a.report.completed++
	case refunded:
		a.report.refunded++
	case credited:
		a.report.unconfirmed++
	default:
		a.report.inFlight++
	}
	if !credited && !refunded {
		if total := a.report.totals[t.started[0].amount.Currency()]; total != nil {
			add(&total.inFlight, t.started[0].amount)
		}
	}
	ended := completed || refunded
	switch {
	case ended && len(t.pending) > 0:
		violate("has ended, and its source answers that it is pending")
	case !ended && len(t.pending) != 1:
		violate("has not ended, and its source answers that it is not pending")
	case !ended && t.pending[0] != t.started[0].amount:
		violate("was debited with %v, and its source answers %v", t.started[0].amount, t.pending[0])
	}
}
