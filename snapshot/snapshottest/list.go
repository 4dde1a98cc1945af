// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"slices"

	"github.com/refold-io/refold/snapshot"
)

func listCases() []Case {
	return []Case{
		{
			Name: "ListOrder",
			Rule: "a list begins with the highest number, in whatever order the snapshots were saved",
			check: func(p *probe) {
				for _, n := range []uint64{100, 9, 11, 10, 99} {
					p.save(numbered(p.id, n))
				}
				p.expectList(p.id, snapshot.Latest(), 100, 99, 11, 10, 9)
			},
		},
		{
			Name: "ListMatches",
			Rule: "a list holds what matches and nothing else; nothing is not an error",
			check: func(p *probe) {
				p.baseline()
				c := snapshot.UpTo(14)
				c.MinSequenceNr = 12
				p.expectList(p.id, c, 14, 13, 12)
				c.MinTime, c.MaxTime = at(13), at(13)
				p.expectList(p.id, c, 13)
				c.MinTime, c.MaxTime = at(16), at(17)
				p.expectList(p.id, c)
			},
		},
		{
			Name: "ListReplaced",
			Rule: "a snapshot that replaced another one is listed once",
			check: func(p *probe) {
				p.baseline()
				p.save(numbered(p.id, 13))
				p.expectList(p.id, snapshot.Latest(), 15, 14, 13, 12, 11)
			},
		},
		{
			Name: "ListLeftEarly",
			Rule: "leaving the loop ends the list, and the store works on",
			check: func(p *probe) {
				p.baseline()
				for m, err := range p.store.List(p.Context(), p.id, snapshot.Latest()) {
					if err != nil || m.SequenceNr != 15 {
						p.Errorf("List yielded %d, %v first, want 15", m.SequenceNr, err)
					}
					break
				}
				p.save(numbered(p.id, 16))
				p.expectNumber(snapshot.Latest(), 16)
			},
		},
		{
			Name: "ListAgain",
			Rule: "a list that is ranged over again begins anew",
			check: func(p *probe) {
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
			},
		},
		{
			Name: "ListBody",
			Rule: "the body of the loop may call the store, and delete what it was shown",
			check: func(p *probe) {
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
			},
		},
	}
}
