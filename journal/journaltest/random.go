// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/refold-io/refold/journal"
)

func randomChecks() []check {
	return []check{
		{"RandomCalls", "after any sequence of calls the journal equals an array of events for each ID", base, func(f *fixture) {
			const steps = 200
			for seed := range uint64(3) {
				p := &player{fixture: f, random: rand.New(rand.NewPCG(seed, 0)), model: make(map[string]*plain)} //nolint:gosec // not a secret
				for k := range 4 {
					p.model[fmt.Sprintf("random|%d|%d", seed, k)] = &plain{}
				}
				for step := range steps {
					id := fmt.Sprintf("random|%d|%d", seed, p.random.IntN(4))
					switch n := p.random.IntN(100); {
					case n < 45:
						p.append(seed)
					case n < 80:
						p.replay(id)
					case n < 90:
						p.delete(id)
					case n < 99 || f.cfg.Reopen == nil:
						f.wantHighest(id, uint64(len(p.model[id].events)))
					default:
						f.reopen()
					}
					if f.Failed() {
						f.Fatalf("failed at step %d with seed %d", step, seed)
					}
				}
			}
		}},
	}
}

// plain is a simple model of a journal with one ID.
type plain struct {
	events  []journal.Event
	deleted int
}

// player makes random calls and computes the expected results.
type player struct {
	*fixture
	random *rand.Rand
	model  map[string]*plain
}

// append calls Append with several writes, many of which cannot be stored.
func (p *player) append(seed uint64) {
	p.Helper()
	var writes []journal.Write
	var want []error
	failed := make(map[string]bool)
	for range 1 + p.random.IntN(5) {
		id := fmt.Sprintf("random|%d|%d", seed, p.random.IntN(4))
		m := p.model[id]
		w := write(id, fmt.Sprint("w", p.random.IntN(3)), uint64(len(m.events)), 1+p.random.IntN(4))
		for i := range w.Events {
			w.Events[i].Payload = pattern(p.random.IntN(300), byte(len(writes))) //nolint:gosec // small
			if p.random.IntN(3) == 0 {
				w.Events[i].Tags = []string{"t", fmt.Sprint(p.random.IntN(5))}
			}
			if p.random.IntN(3) == 0 {
				w.Events[i].Metadata = pattern(p.random.IntN(50), 1)
			}
		}
		var err error
		switch n := p.random.IntN(12); {
		case n == 0:
			w.Events[len(w.Events)-1].SequenceNr += 1 + p.random.Uint64N(3)
			err = journal.ErrRejected
		case n < 3:
			w = write(id, "w", p.random.Uint64N(w.Expect+3), 1)
		}
		if err == nil && w.Expect != uint64(len(m.events)) {
			err = journal.ErrConflict
		}
		if failed[id] {
			err = journal.ErrSkipped
		}
		if err == nil {
			m.events = append(m.events, eventsOf(w)...)
		} else {
			failed[id] = true
		}
		writes, want = append(writes, w), append(want, err)
	}
	for i, err := range p.appendAll(p.ctx, writes...) {
		if !errors.Is(err, want[i]) {
			p.Errorf("write %d of a call, to %q expecting %d: %v, want %v", i, writes[i].ID, writes[i].Expect, err, want[i])
		}
	}
}

func (p *player) replay(id string) {
	p.Helper()
	m := p.model[id]
	last := uint64(len(m.events))
	from, to := p.random.Uint64N(last+3), p.random.Uint64N(last+3)
	if p.random.IntN(3) == 0 {
		from, to = 0, maxSeq
	}
	var want []journal.Event
	for _, e := range m.events[m.deleted:] {
		if e.SequenceNr >= from && e.SequenceNr <= to {
			want = append(want, e)
		}
	}
	p.wantEvents(id, p.fixture.replay(id, from, to), want)
}

func (p *player) delete(id string) {
	p.Helper()
	m := p.model[id]
	to := p.random.IntN(len(m.events) + 2)
	p.deleteTo(id, uint64(to)) //nolint:gosec // small
	m.deleted = max(m.deleted, min(to, len(m.events)))
}
