// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/outbox"
)

// entry is the state of a delivery in the ledger.
type entry struct {
	nr, event   uint64
	confirmedBy uint64 // an event, 0 for none
	item        string
	sent        []time.Time
}

// ledger is a simple model of an Outgoing: it removes no entry, and searches all entries each time.
type ledger struct {
	cfg       outbox.Config
	entries   []*entry
	recovered bool
	durable   uint64 // event
	sentTo    uint64 // deliveries up to this number were sent once or found at the recovery
	resume    uint64
	tick      time.Time
}

func (l *ledger) add(event uint64, item string) uint64 {
	l.entries = append(l.entries, &entry{nr: uint64(len(l.entries)) + 1, event: event, item: item})
	return uint64(len(l.entries))
}

func (l *ledger) confirm(event, nr uint64) bool {
	if nr == 0 || nr > uint64(len(l.entries)) || l.entries[nr-1].confirmedBy != 0 {
		return false
	}
	l.entries[nr-1].confirmedBy = event
	if len(l.open()) == 0 {
		l.tick = time.Time{}
	}
	return true
}

func (l *ledger) open() (open []*entry) {
	for _, e := range l.entries {
		if e.confirmedBy == 0 {
			open = append(open, e)
		}
	}
	return open
}

// floor is the lowest number that is not confirmed by a stored event.
func (l *ledger) floor() uint64 {
	for _, e := range l.entries {
		if e.confirmedBy == 0 || l.recovered && e.confirmedBy > l.durable {
			return e.nr
		}
	}
	return uint64(len(l.entries)) + 1
}

func (l *ledger) recover(durable uint64, now time.Time) outbox.Effects[string] {
	l.recovered, l.durable, l.sentTo = true, durable, uint64(len(l.entries))
	return l.burst(now)
}

func (l *ledger) store(durable uint64, now time.Time) outbox.Effects[string] {
	l.durable = durable
	out := outbox.Effects[string]{Floor: l.floor()}
	for _, e := range l.entries {
		if e.nr > l.sentTo && e.event <= durable {
			l.sentTo = e.nr
			if e.confirmedBy == 0 {
				l.send(e, now, &out)
			}
		}
	}
	if len(out.Sends) > 0 && l.tick.IsZero() {
		l.tick = now.Add(l.cfg.Interval / 2)
	}
	return out
}

func (l *ledger) burst(now time.Time) outbox.Effects[string] {
	out := outbox.Effects[string]{Floor: l.floor()}
	var due []*entry
	for _, e := range l.open() {
		if e.nr <= l.sentTo && (len(e.sent) == 0 || now.Sub(e.sent[len(e.sent)-1]) >= l.cfg.Interval) {
			due = append(due, e)
		}
	}
	if from := slices.IndexFunc(due, func(e *entry) bool { return e.nr >= l.resume }); from > 0 {
		due = slices.Concat(due[from:], due[:from])
	}
	l.resume = 0
	if len(due) > l.cfg.Burst {
		l.resume = due[l.cfg.Burst].nr
		due = due[:l.cfg.Burst]
	}
	slices.SortFunc(due, func(a, b *entry) int { return cmp.Compare(a.nr, b.nr) })
	for _, e := range due {
		l.send(e, now, &out)
	}
	l.tick = time.Time{}
	if len(l.open()) > 0 {
		l.tick = now.Add(l.cfg.Interval / 2)
	}
	return out
}

func (l *ledger) send(e *entry, now time.Time, out *outbox.Effects[string]) {
	e.sent = append(e.sent, now)
	s := outbox.Sending[string]{Nr: e.nr, Attempt: len(e.sent), Item: e.item}
	out.Sends = append(out.Sends, s)
	if len(e.sent) == l.cfg.WarnAfter+1 {
		out.Warn = append(out.Warn, s)
	}
}

// difference describes the difference of two effects, "" for none. The floor is compared only if a
// message is sent.
func difference(got, want outbox.Effects[string]) string {
	switch {
	case !slices.Equal(got.Sends, want.Sends):
		return fmt.Sprintf("sends %+v, want %+v", got.Sends, want.Sends)
	case !slices.Equal(got.Warn, want.Warn):
		return fmt.Sprintf("warns about %+v, want %+v", got.Warn, want.Warn)
	case len(got.Sends) > 0 && got.Floor != want.Floor:
		return fmt.Sprintf("sends with floor %d, want %d", got.Floor, want.Floor)
	}
	return ""
}
