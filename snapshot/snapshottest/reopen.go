// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"errors"

	"github.com/refold-io/refold/snapshot"
)

func reopenChecks() []check {
	return []check{
		{"Reopened", "saved snapshots are complete when the store is opened again", reopens, func(p *probe) {
			p.baseline()
			s := uniform(p.id, 16, 'z')
			p.save(s)
			p.reopen()
			p.expect(snapshot.Latest(), s)
			p.expectNumber(snapshot.UpTo(15), 15)
			p.expectList(p.id, snapshot.Latest(), 16, 15, 14, 13, 12, 11)
		}},
		{"ReopenedReplaced", "a snapshot that was replaced stays replaced when the store is opened again", reopens, func(p *probe) {
			p.baseline()
			s := uniform(p.id, 15, 'z')
			p.save(s)
			p.reopen()
			p.expect(snapshot.Latest(), s)
		}},
		{"ReopenedDeleted", "deletions survive a restart of the store", reopens, func(p *probe) {
			p.baseline()
			p.delete(p.id, snapshot.UpTo(13))
			p.reopen()
			p.expectList(p.id, snapshot.Latest(), 15, 14)
			p.delete(p.id, snapshot.Criteria{All: true})
			p.reopen()
			p.expectNone(p.id, snapshot.Latest())
		}},
	}
}

func (p *probe) reopen() {
	p.Helper()
	p.store = p.cfg.Reopen(p.TB, p.store)
}

func damageChecks() []check {
	return []check{
		{"DamagedNewest", "when the newest snapshot can't be read an older match is loaded", damages, func(p *probe) {
			p.baseline()
			p.damage(15)
			p.expectNumber(snapshot.Latest(), 14)
			p.damage(13)
			p.expectNumber(snapshot.UpTo(13), 12)
		}},
		{"DamagedAll", "when no match can be read the error is ErrCorrupt, not that there is none", damages, func(p *probe) {
			p.save(numbered(p.id, 11))
			p.save(numbered(p.id, 12))
			p.damage(11)
			p.damage(12)
			p.expectCorrupt(snapshot.Latest())
			p.expectCorrupt(snapshot.UpTo(11))
			p.expectNone(p.id, snapshot.UpTo(10))
		}},
		{"DamagedReplaced", "a damaged snapshot can be replaced, and deleted by its number", damages, func(p *probe) {
			p.baseline()
			p.damage(14)
			p.damage(15)
			p.save(numbered(p.id, 15))
			p.expectNumber(snapshot.Latest(), 15)
			p.delete(p.id, snapshot.At(14))
			p.expectList(p.id, snapshot.Latest(), 15, 13, 12, 11)
		}},
	}
}

func (p *probe) damage(seqNr uint64) {
	p.Helper()
	p.cfg.Damage(p.TB, p.store, numbered(p.id, seqNr).Metadata)
}

func (p *probe) expectCorrupt(c snapshot.Criteria) {
	p.Helper()
	got, err := p.store.Load(p.Context(), p.id, c)
	switch {
	case err == nil:
		p.Errorf("Load(%s) = the snapshot at %d, want ErrCorrupt", show(c), got.SequenceNr)
	case !errors.Is(err, snapshot.ErrCorrupt), errors.Is(err, snapshot.ErrNotFound):
		p.Errorf("Load(%s): %v, want ErrCorrupt", show(c), err)
	}
}
