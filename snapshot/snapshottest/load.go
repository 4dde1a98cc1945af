// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/snapshot"
)

func loadChecks() []check {
	return []check{
		{"UnknownID", "a load of an ID that was never saved fails with ErrNotFound", always, func(p *probe) {
			p.expectNone(p.id, snapshot.Latest())
			p.expectList(p.id, snapshot.Latest())
		}},
		{"NothingOldEnough", "an upper bound on the time before all snapshots matches none", always, func(p *probe) {
			p.baseline()
			c := snapshot.Latest()
			c.MaxTime = at(10)
			p.expectNone(p.id, c)
		}},
		{"NothingLowEnough", "an upper bound on the sequence number below all snapshots matches none", always, func(p *probe) {
			p.baseline()
			p.expectNone(p.id, snapshot.UpTo(7))
		}},
		{"NewestOfAll", "a load without bounds returns all fields of the snapshot with the highest sequence number", always, func(p *probe) {
			p.baseline()
			p.expectNumber(snapshot.Latest(), 15)
		}},
		{"NewestByNumber", "the newest snapshot is the one with the highest sequence number, regardless of the order of the saves", always, func(p *probe) {
			for _, n := range []uint64{9, 100, 10, 99} {
				p.save(numbered(p.id, n))
			}
			p.expectNumber(snapshot.Latest(), 100)
			p.expectNumber(snapshot.UpTo(99), 99)
			p.expectNumber(snapshot.UpTo(98), 10)
		}},
		{"NewestUpToNumber", "the upper bound on the sequence number is inclusive", always, func(p *probe) {
			p.baseline()
			p.expectNumber(snapshot.UpTo(13), 13)
		}},
		{"NewestUpToNumberAndTime", "the upper bound on the time is inclusive", always, func(p *probe) {
			p.baseline()
			c := snapshot.UpTo(13)
			c.MaxTime = at(13)
			p.expectNumber(c, 13)
			c.MaxSequenceNr = snapshot.Latest().MaxSequenceNr
			p.expectNumber(c, 13)
		}},
	}
}

func boundsChecks() []check {
	return []check{
		{"LowerBounds", "the lower bounds are inclusive, and a match satisfies all four", always, func(p *probe) {
			p.baseline()
			c := snapshot.UpTo(13)
			c.MinSequenceNr = 13
			p.expectNumber(c, 13)
			c.MinSequenceNr = 14
			p.expectNone(p.id, c)
			c = snapshot.Latest()
			c.MinTime, c.MaxTime = at(13), at(13)
			p.expectNumber(c, 13)
			c.MinTime = at(13).Add(time.Microsecond)
			p.expectNone(p.id, c)
		}},
		{"ZeroBounds", "a zero bound has no effect, and a deletion without a bound requires All", always, func(p *probe) {
			p.baseline()
			p.expectNumber(snapshot.Criteria{}, 15)
			p.expectNumber(snapshot.Criteria{MaxSequenceNr: 13}, 13)
			p.expectNumber(snapshot.Criteria{MaxTime: at(13)}, 13)
			p.expectNone(p.id, snapshot.UpTo(0))
			p.expectNone(p.id, snapshot.At(0))
			p.expectList(p.id, snapshot.Criteria{}, 15, 14, 13, 12, 11)
			p.expectList(p.id, snapshot.Criteria{MinSequenceNr: 14}, 15, 14)
			p.delete(p.id, snapshot.UpTo(0))
			for _, c := range []snapshot.Criteria{{}, snapshot.Latest()} {
				if err := p.store.Delete(p.Context(), p.id, c); !errors.Is(err, snapshot.ErrInvalid) {
					p.Errorf("Delete(%s): %v, want ErrInvalid", show(c), err)
				}
			}
			p.expectList(p.id, snapshot.Latest(), 15, 14, 13, 12, 11)
			p.delete(p.id, snapshot.Criteria{All: true})
			p.expectList(p.id, snapshot.Latest())
		}},
		{"ExtremeNumbers", "sequence numbers from 1 to the largest int64 are stored unchanged and compared as numbers", always, func(p *probe) {
			for _, n := range []uint64{1, 1 << 32, math.MaxInt64, 1 << 31} {
				p.save(numbered(p.id, n))
			}
			p.expectList(p.id, snapshot.Latest(), math.MaxInt64, 1<<32, 1<<31, 1)
			p.expectNumber(snapshot.UpTo(1), 1)
			p.expectNumber(snapshot.At(math.MaxInt64), math.MaxInt64)
		}},
		{"ExtremeTimes", "times from the year 1 to the year 9999 are stored to the microsecond and returned in UTC", always, func(p *probe) {
			for i, when := range []time.Time{
				{},
				time.Date(1969, time.December, 31, 23, 59, 59, 999_999_000, time.UTC),
				at(0).Add(time.Microsecond),
				snapshot.Latest().MaxTime,
			} {
				s := numbered(p.id, uint64(i+1))
				s.Time = when
				p.save(s)
				p.expect(snapshot.Latest(), s)
			}
		}},
	}
}

func listChecks() []check {
	return []check{
		{"ListOrder", "a list begins with the highest number, regardless of the order of the saves", always, func(p *probe) {
			for _, n := range []uint64{100, 9, 11, 10, 99} {
				p.save(numbered(p.id, n))
			}
			p.expectList(p.id, snapshot.Latest(), 100, 99, 11, 10, 9)
		}},
		{"ListMatches", "a list contains exactly the matches; an empty list is not an error", always, func(p *probe) {
			p.baseline()
			c := snapshot.UpTo(14)
			c.MinSequenceNr = 12
			p.expectList(p.id, c, 14, 13, 12)
			c.MinTime, c.MaxTime = at(13), at(13)
			p.expectList(p.id, c, 13)
			c.MinTime, c.MaxTime = at(16), at(17)
			p.expectList(p.id, c)
		}},
		{"ListReplaced", "a snapshot that replaced another one is listed once", always, func(p *probe) {
			p.baseline()
			p.save(numbered(p.id, 13))
			p.expectList(p.id, snapshot.Latest(), 15, 14, 13, 12, 11)
		}},
		{"ListLeftEarly", "the store remains usable after a list loop that is left early", always, func(p *probe) {
			p.baseline()
			for m, err := range p.store.List(p.Context(), p.id, snapshot.Latest()) {
				if err != nil || m.SequenceNr != 15 {
					p.Errorf("List yielded %d, %v first, want 15", m.SequenceNr, err)
				}
				break
			}
			p.save(numbered(p.id, 16))
			p.expectNumber(snapshot.Latest(), 16)
		}},
		{"ListAgain", "a second loop over a list starts from the beginning", always, func(p *probe) {
			p.baseline()
			list := p.store.List(p.Context(), p.id, snapshot.Latest())
			for range 2 {
				var got []uint64
				for m, err := range list {
					if err != nil {
						p.Fatalf("List: %v", err)
					}
					got = append(got, m.SequenceNr)
				}
				if want := []uint64{15, 14, 13, 12, 11}; !slices.Equal(got, want) {
					p.Errorf("List = %v, want %v", got, want)
				}
			}
		}},
		{"ListBody", "the loop body may call the store and delete listed snapshots", always, func(p *probe) {
			p.baseline()
			for m, err := range p.store.List(p.Context(), p.id, snapshot.UpTo(14)) {
				if err != nil {
					p.Fatalf("List: %v", err)
				}
				p.expectNumber(snapshot.At(m.SequenceNr), m.SequenceNr)
				p.delete(p.id, snapshot.At(m.SequenceNr))
				p.save(numbered(p.id, m.SequenceNr+100))
			}
			p.expectList(p.id, snapshot.Latest(), 114, 113, 112, 111, 15)
		}},
	}
}
