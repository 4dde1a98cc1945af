// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/refold-io/refold/journal"
)

func queryMatchChecks() []check {
	return []check{
		{"QueryOrder", "each read returns the events of all IDs in the same order, and those of one ID by ascending number", queries, func(f *fixture) {
			f.wantRead(journal.Criteria{}, "")
			writes := spread(6)
			half := len(writes) / 2
			f.store(writes[:half]...)
			first := f.wantRead(journal.Criteria{}, "", writes[:half]...)
			for _, w := range writes[half:] {
				f.store(w)
			}
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			f.wantSame("a later read, up to the end of the first one", whole[:min(len(first), len(whole))], first)
			again := f.wantRead(journal.Criteria{}, "", writes...)
			f.wantSame("the same read again", again, whole)
			for _, q := range []journal.Criteria{{Types: []string{"other"}}, {Tag: "all"}, {Slices: journal.Slices{Count: 512}}} {
				f.wantOn(q, "", whole)
			}
		}},
		{"QueryFields", "a query yields all fields of an event", queries, func(f *fixture) {
			var writes []journal.Write
			for n := range uint64(5) {
				for _, id := range []string{"fields|1", "fields|2"} {
					w := write(id, fmt.Sprintf("writer %d of %s", n, id), 3*n, 3)
					w.Events[0].Payload, w.Events[0].Metadata = nil, everyByte()
					w.Events[1].Payload, w.Events[1].Tags = everyByte(), []string{"z", "a", id}
					w.Events[2].Manifest, w.Events[2].Payload = fmt.Sprint("manifest ", n), pattern(20_000, byte(n))
					writes = append(writes, w)
				}
			}
			f.store(writes...)
			f.wantRead(journal.Criteria{}, "", writes...)
			f.wantRead(journal.Criteria{Tag: "fields|2"}, "", writes...)
			f.wantRead(journal.Criteria{Types: []string{"fields"}, Slices: journal.Slices{First: journal.SliceOf("fields|1"), Count: 1}}, "", writes...)
		}},
		{"QueryOddIDs", "a query compares IDs bytewise", queries, func(f *fixture) {
			var writes []journal.Write
			for i, id := range oddIDs() {
				w := write(id, "w", 0, 1+i%2)
				w.Events[0].Tags = []string{id}
				writes = append(writes, w)
			}
			f.store(writes...)
			f.wantRead(journal.Criteria{}, "", writes...)
			for _, w := range writes {
				f.wantRead(journal.Criteria{Tag: w.ID}, "", writes...)
			}
		}},
		{"QueryType", "the type is exactly the part of an ID before its first |", queries, func(f *fixture) {
			var writes []journal.Write
			for _, id := range oddIDs() {
				writes = append(writes, write(id, "w", 0, 1))
			}
			for _, id := range []string{"acc|1", "accounts|1", "account |1", " account|1", "ac_ount|1", "account%|1", "accoun_|1", "帳|1", "帳戶|2|3", "x|account|1"} {
				writes = append(writes, write(id, "w", 0, 2))
			}
			f.store(writes...)
			for _, name := range []string{"account", "Account", "acc", "accounts", "ac", "a", "x", "account ", "ac_ount", "account%", "%", "帳戶", "帳", "no such type", strings.Repeat("x", journal.MaxIDLength)} {
				f.wantRead(journal.Criteria{Types: []string{name}}, "", writes...)
			}
		}},
		{"QueryTypes", "a query with several types returns the events of each type once", queries, func(f *fixture) {
			var writes []journal.Write
			for i, id := range []string{"account|1", "loan|1", "card|1", "account|2", "loans|1", "account", "a|loan|1", "card|2", "loan"} {
				w := write(id, "w", 0, 1+i%3)
				w.Events[0].Tags = []string{"tag"}
				writes = append(writes, w)
			}
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for _, types := range [][]string{{"account", "loan"}, {"loan", "account"}, {"card", "card"}, {"none", "card"}, {"a", "account", "card", "loan", "loans"}} {
				f.wantOn(journal.Criteria{Types: types}, "", whole)
				f.wantOn(journal.Criteria{Types: types}, whole[4].Offset, whole[5:])
				f.wantOn(journal.Criteria{Types: types, Tag: "tag"}, "", whole)
				f.wantOn(journal.Criteria{Types: types, Slices: journal.Slices{Count: 512}}, "", whole)
			}
		}},
		{"QueryReserved", "only a query that names their type returns the records of Refold itself", queries, func(f *fixture) {
			const own, other = journal.ReservedPrefix + "own", journal.ReservedPrefix + "other"
			var writes []journal.Write
			for n := range uint64(3) {
				for _, id := range []string{own + "|1|account", "account|1", other + "|1", journal.ReservedPrefix + "|1", "refold|1", "refolds.own|1", "x." + own + "|1", "Refold.own|1"} {
					w := write(id, "w", 250*n, 250)
					for i := range w.Events {
						w.Events[i].Tags = []string{"tag"}
					}
					writes = append(writes, w)
				}
			}
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{Types: []string{own, other, journal.ReservedPrefix, "account", "refold", "refolds.own", "x." + own, "Refold.own"}}, "", writes...)
			for _, tag := range []string{"", "tag"} {
				f.wantOn(journal.Criteria{Tag: tag}, "", whole)
				f.wantOn(journal.Criteria{Tag: tag, Slices: journal.Slices{Count: 512}}, "", whole)
				f.wantOn(journal.Criteria{Tag: tag, Slices: journal.Slices{First: 512, Count: 512}}, "", whole)
				f.wantOn(journal.Criteria{Tag: tag, Types: []string{own}}, "", whole)
				f.wantOn(journal.Criteria{Tag: tag, Types: []string{own, "account"}}, "", whole)
			}
		}},
		{"QueryTag", "a query by tag returns each event with exactly that tag once", queries, func(f *fixture) {
			tags := []string{
				"red", "re", "reddish", "Red", "RED", "red ", " red", "r%", "red,blue", "{red}", `"red"`, `re\d`, "'", "''", "null", "NULL", "a|b", "|", "-", "1", "10",
				"é", "e\u0301", "紅", "紅色", "🔴", "\u202ered", "tab\t", strings.Repeat("t", 200), strings.Repeat("t", 199), strings.Repeat("紅", 60),
			}
			var writes []journal.Write
			for i, tag := range tags {
				w := write(fmt.Sprint("tagged|", i), "w", 0, 4)
				w.Events[0].Tags = []string{tag}
				w.Events[1].Tags = []string{tag, tags[(i+1)%len(tags)], tag} // twice the same
				w.Events[2].Tags = []string{"also", tags[(i+7)%len(tags)]}
				writes = append(writes, w)
			}
			many := write("tagged|many", "w", 0, 2)
			for i := range 100 {
				many.Events[1].Tags = append(many.Events[1].Tags, fmt.Sprint("one of many ", i))
			}
			writes = append(writes, many)
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for _, tag := range append(tags, "also", "one of many 0", "one of many 99", "one of many", "no such tag") {
				f.wantOn(journal.Criteria{Tag: tag}, "", whole)
			}
		}},
		{"QuerySlices", "each event is in exactly one slice: the slice of its ID", queries, func(f *fixture) {
			var writes []journal.Write
			for n := range 100 {
				writes = append(writes, write(fmt.Sprint("sliced|", n*n), "w", 0, 1))
			}
			for _, id := range oddIDs() { // some with UTF-16 surrogates
				writes = append(writes, write(id, "w", 0, 1))
			}
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for _, workers := range []int{1, 8, 32} {
				ranges, err := journal.SplitSlices(workers)
				if err != nil {
					f.Fatalf("%v", err)
				}
				n := 0
				for _, r := range ranges {
					n += len(f.wantOn(journal.Criteria{Slices: r}, "", whole))
				}
				if n != len(whole) {
					f.Errorf("%d workers see %d events, want %d", workers, n, len(whole))
				}
			}
			for _, w := range writes[:10] {
				slice := journal.SliceOf(w.ID)
				for _, r := range []journal.Slices{{First: slice, Count: 1}, {First: 0, Count: slice + 1}, {First: slice, Count: journal.SliceCount - slice}} {
					f.wantOn(journal.Criteria{Slices: r}, "", whole)
				}
			}
		}},
		{"QueryTogether", "a query may combine type, tag and slices", queries, func(f *fixture) {
			writes := spread(5)
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for _, types := range [][]string{nil, {"spread"}, {"other"}, {"other", "spread"}} {
				for _, tag := range []string{"", "all", "every 2", "id 3"} {
					for k := range 4 {
						f.wantOn(journal.Criteria{Types: types, Tag: tag, Slices: journal.Slices{First: k * 256, Count: 256}}, "", whole)
					}
					f.wantOn(journal.Criteria{Types: types, Tag: tag}, whole[9].Offset, whole[10:])
				}
			}
		}},
		{"QueryInvalid", "Query rejects criteria that Criteria.Check rejects, with ErrInvalid", queries, func(f *fixture) {
			f.store(write("invalid|1", "w", 0, 1))
			for _, q := range []journal.Criteria{
				{Types: []string{"in|valid"}},
				{Types: []string{""}},
				{Types: []string{"valid", "in|valid"}},
				{Types: []string{"\xff"}},
				{Types: []string{"a\x00"}},
				{Tag: "\xff"},
				{Tag: "a\x00"},
				{Slices: journal.Slices{First: 1}},
				{Slices: journal.Slices{First: -1, Count: 2}},
				{Slices: journal.Slices{First: 0, Count: -1}},
				{Slices: journal.Slices{First: 1, Count: journal.SliceCount}},
				{Slices: journal.Slices{First: math.MaxInt, Count: 1}},
			} {
				p, err := f.querier().Query(f.ctx, q, "")
				if !errors.Is(err, journal.ErrInvalid) || len(p.Events) > 0 {
					f.Errorf("Query(%+v) finds %s and fails with %v, want ErrInvalid", q, list(p.Events), err)
				}
			}
		}},
		{"QueryBadOffset", "an invalid offset is rejected with ErrOffset", queries, func(f *fixture) {
			f.store(write("offset|1", "w", 0, 1))
			made := f.wantRead(journal.Criteria{}, "", write("offset|1", "w", 0, 1))[0].Offset
			for _, o := range []journal.Offset{
				"no offset", " ", "\x00", "\xff", "-", "%", "null", "'", "{}", "-1", "+1", "0x1", "1e3", "1.5",
				"99999999999999999999999999999999", journal.Offset(strings.Repeat("9", 65)), journal.Offset(strings.Repeat("x", 100_000)),
				" " + made, made + " ", made + "\x00", made + "x", "x" + made, made + made,
			} {
				p, err := f.querier().Query(f.ctx, journal.Criteria{}, o)
				if !errors.Is(err, journal.ErrOffset) || len(p.Events) > 0 {
					f.Errorf("Query after %.60q finds %s and fails with %v, want ErrOffset", o, list(p.Events), err)
				}
				if err != nil && len(err.Error()) > 1000 {
					f.Errorf("Query after %.60q fails with an error of %d bytes", o, len(err.Error()))
				}
				if err := f.await(f.ctx, o); !errors.Is(err, journal.ErrOffset) {
					f.Errorf("Await after %.60q: %v, want ErrOffset", o, err)
				}
			}
		}},
	}
}

// spread returns writes of several events to several IDs of two types, in turns.
func spread(rounds int) []journal.Write {
	const ids = 7
	var writes []journal.Write
	next := make([]uint64, ids)
	for r := range rounds {
		for k := range ids {
			n := 1 + (r+k)%3
			w := write(fmt.Sprintf("%s|%d", []string{"spread", "other"}[k%2], k), "w", next[k], n)
			for i := range w.Events {
				w.Events[i].Tags = []string{"all", fmt.Sprint("every ", 2+i%3), fmt.Sprint("id ", k)}[i%2:]
			}
			next[k] += uint64(n)
			writes = append(writes, w)
		}
	}
	return writes
}

// queryStateChecks returns the checks about events that were deleted, not stored, stored before a
// restart, or stored through another handle.
func queryStateChecks() []check {
	return []check{
		{"QueryDeleted", "deleted events are not returned; other events and all offsets do not change", queries, func(f *fixture) {
			writes := spread(5)
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			end := f.end()
			deleted := make(map[string]uint64)
			left := func(events []journal.Envelope) []journal.Envelope {
				return slices.DeleteFunc(slices.Clone(events), func(e journal.Envelope) bool { return e.SequenceNr <= deleted[e.ID] })
			}
			for _, c := range []struct {
				id string
				to uint64
			}{{"spread|0", 3}, {"spread|4", 1}, {"other|1", maxSeq}, {"spread|0", 2}, {"spread|2", maxSeq}, {"other|3", 4}} {
				f.deleteTo(c.id, c.to)
				deleted[c.id] = max(deleted[c.id], c.to)
				for _, q := range []journal.Criteria{{}, {Tag: "all"}, {Tag: "id 1"}, {Types: []string{"spread"}}, {Slices: journal.Slices{Count: 512}}} {
					f.wantOn(q, "", left(whole))
				}
				for i := 0; i < len(whole); i += 5 {
					f.wantOn(journal.Criteria{}, whole[i].Offset, left(whole[i+1:]))
				}
				if now := f.end(); now.Compare(end) < 0 {
					f.Errorf("a deletion moved the end back from %q to %q", end, now)
				}
				if f.Failed() {
					return
				}
			}
			for id := range deleted {
				f.deleteTo(id, maxSeq)
			}
			for k := range 7 {
				f.deleteTo(fmt.Sprintf("%s|%d", []string{"spread", "other"}[k%2], k), maxSeq)
			}
			if got, _ := f.walk(journal.Criteria{}, ""); len(got) > 0 {
				f.Errorf("after all events were deleted, Query yields %s", list(got))
			}
			next := write("deleted|new", "w", 0, 2)
			f.store(next)
			f.wantRead(journal.Criteria{}, "", next)
			f.wantRead(journal.Criteria{}, end, next)
			f.wantRead(journal.Criteria{}, whole[0].Offset, next)
		}},
		{"QueryFences", "fences are left out", queries, func(f *fixture) {
			fences := func(id string, expect uint64, n int) journal.Write {
				w := write(id, "w", expect, n)
				for i := range w.Events {
					w.Events[i].Manifest, w.Events[i].Payload = "", nil
				}
				return w
			}
			writes := []journal.Write{
				fences("fenced|1", 0, 1), write("fenced|1", "w", 1, 2), fences("fenced|1", 3, 2), write("fenced|1", "w", 5, 1),
				fences("fenced|2", 0, 3),
				write("fenced|3", "w", 0, 1), fences("fenced|3", 1, pageRecords+1), write("fenced|3", "w", pageRecords+2, 1), fences("fenced|3", pageRecords+3, 1),
			}
			for _, w := range writes {
				f.store(w)
			}
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for i, e := range whole {
				f.wantOn(journal.Criteria{}, e.Offset, whole[i+1:])
			}
			for k := range 3 {
				slice := journal.Slices{First: journal.SliceOf(fmt.Sprint("fenced|", k+1)), Count: 1}
				f.wantRead(journal.Criteria{Types: []string{"fenced"}, Slices: slice}, "", writes...)
			}
			_, next := f.walk(journal.Criteria{}, "")
			f.store(fences("fenced|2", 3, 1))
			after := write("fenced|2", "w", 4, 1)
			f.store(after)
			f.wantRead(journal.Criteria{}, next, after)
		}},
		{"QueryOnlyStored", "events that were not stored are not found", queries, func(f *fixture) {
			good, late := write("stored|1", "w", 0, 2), write("stored|1", "late", 0, 2)
			large, behind := write("stored|2", "w", 0, 2), write("stored|2", "w", 2, 1)
			large.Events[1].Payload = make([]byte, f.cfg.MaxPayload+1)
			early := write("stored|3", "w", 1, 1)
			mixed := write("stored|4", "w", 0, 1)
			for _, w := range []*journal.Write{&good, &late, &large, &behind, &early, &mixed} {
				w.Events[0].Tags = []string{"tag"}
			}
			f.appendAll(f.ctx, good, late, large, behind, early, mixed)
			ended, cancel := context.WithCancel(f.ctx)
			cancel()
			unsure := write("stored|5", "w", 0, 1)
			stored := []journal.Write{good, mixed}
			f.wantTruth(unsure, f.appendAll(ended, unsure)[0])
			if events := f.replay(unsure.ID, 1, 1); len(events) == 1 && !events[0].IsFence() {
				stored = append(stored, unsure)
			}
			last := write("stored|6", "w", 0, 1)
			f.store(last)
			stored = append(stored, last)
			f.wantRead(journal.Criteria{}, "", stored...)
			f.wantRead(journal.Criteria{Tag: "tag"}, "", stored...)
			f.wantRead(journal.Criteria{Types: []string{"stored"}}, "", stored...)
		}},
		{"QueryReopen", "events and offsets do not change when the journal is opened again", queriesReopen, func(f *fixture) {
			writes := spread(4)
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			end := f.end()
			f.deleteTo("spread|0", 4)
			whole = slices.DeleteFunc(whole, func(e journal.Envelope) bool { return e.ID == "spread|0" && e.SequenceNr <= 4 })
			for round := range uint64(3) {
				f.reopen()
				for _, q := range []journal.Criteria{{}, {Tag: "all"}, {Types: []string{"other"}}, {Slices: journal.Slices{First: 512, Count: 512}}} {
					f.wantOn(q, "", whole)
				}
				i := len(whole) / 3
				f.wantOn(journal.Criteria{}, whole[i].Offset, whole[i+1:])
				w := write("reopened|1", "w", 2*round, 2)
				f.store(w)
				whole = append(whole, f.wantRead(journal.Criteria{}, end, w)...)
				end = f.end()
			}
		}},
		{"QueryAttached", "all handles on one journal see the same order", queriesAttach, func(f *fixture) {
			handles := []journal.Journal{f.j, f.attach()}
			writes := spread(3)
			for i, w := range writes {
				f.j = handles[i%2]
				f.store(w)
			}
			var reads [2][]journal.Envelope
			for k := range handles {
				f.j = handles[k]
				reads[k] = f.wantRead(journal.Criteria{}, "", writes...)
			}
			f.j = handles[0]
			f.wantSame("a read through the second handle", reads[1], reads[0])
			i := len(reads[1]) / 2
			f.wantOn(journal.Criteria{}, reads[1][i].Offset, reads[0][i+1:])
		}},
		{"QueryCancelled", "a read whose context has ended yields its page or the cause", queries, func(f *fixture) {
			writes := spread(2)
			f.store(writes...)
			want := f.wantRead(journal.Criteria{}, "", writes...)
			gone := errors.New("gone")
			ctx, cancel := context.WithCancelCause(f.ctx)
			cancel(gone)
			q := f.querier()
			f.within("a query whose context has ended", func() {
				p, err := q.Query(ctx, journal.Criteria{}, "")
				if err == nil {
					f.wantSame("a page of a read whose context has ended", p.Events, want[:min(len(p.Events), len(want))])
					if !p.More && len(p.Events) != len(want) {
						f.Errorf("a read with an ended context yields %s without an error", list(p.Events))
					}
				} else if !errors.Is(err, gone) {
					f.Errorf("Query with an ended context: %v, want its cause", err)
				}
				if o, err := q.End(ctx); err != nil && !errors.Is(err, gone) || err == nil && o.Compare(want[len(want)-1].Offset) < 0 {
					f.Errorf("End with an ended context: %q and %v, want its cause", o, err)
				}
			})
			f.wantRead(journal.Criteria{}, "", writes...)
		}},
		{"QueryClosed", "after Close all methods of a Querier fail with ErrClosed", queries, func(f *fixture) {
			f.store(write("closed", "w", 0, 1))
			q := f.querier()
			f.close()
			f.within("a query of a closed journal", func() {
				if p, err := q.Query(f.ctx, journal.Criteria{}, ""); !errors.Is(err, journal.ErrClosed) || len(p.Events) > 0 {
					f.Errorf("Query yields %s and %v, want ErrClosed", list(p.Events), err)
				}
				if o, err := q.End(f.ctx); !errors.Is(err, journal.ErrClosed) {
					f.Errorf("End is %q and %v, want ErrClosed", o, err)
				}
				if err := q.Await(f.ctx, ""); !errors.Is(err, journal.ErrClosed) {
					f.Errorf("Await: %v, want ErrClosed", err)
				}
			})
		}},
	}
}
