// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

func TestOffsets(t *testing.T) {
	t.Parallel()
	for _, ordinal := range []int64{0, 1, 9, 10, 12345, 1<<63 - 1} {
		o := postgres.FormatOffset(ordinal)
		if got, err := postgres.ParseOffset(o); err != nil || got != ordinal {
			t.Errorf("offset %q of %d is parsed as %d, %v", o, ordinal, got, err)
		}
	}
	if postgres.FormatOffset(9).Compare(postgres.FormatOffset(10)) >= 0 {
		t.Error("the offset of 9 is not before the offset of 10")
	}
	for _, o := range []journal.Offset{"1", "pg1:", "pg1:0", "pg1:01", "pg1:+1", "pg1:-1", "pg1: 1", "pg1:1 ", "pg1:1x", "pg2:1", "pg1:9223372036854775808", "pg1:१", "\x00", "lv1:1"} {
		if _, err := postgres.ParseOffset(o); !errors.Is(err, journal.ErrOffset) {
			t.Errorf("offset %q: %v, want ErrOffset", o, err)
		}
	}
}

func FuzzOffset(f *testing.F) {
	f.Add("pg1:17")
	f.Fuzz(func(t *testing.T, o string) {
		ordinal, err := postgres.ParseOffset(journal.Offset(o))
		if err == nil && (ordinal < 0 || postgres.FormatOffset(ordinal) != journal.Offset(o)) {
			t.Errorf("offset %q is %d, whose offset is %q", o, ordinal, postgres.FormatOffset(ordinal))
		}
	})
}

// TestQueryAgainstModel reads random events with all kinds of criteria and compares the result with
// Criteria.Matches.
func TestQueryAgainstModel(t *testing.T) {
	t.Parallel()
	for _, cached := range []bool{false, true} {
		t.Run(fmt.Sprint("cached=", cached), func(t *testing.T) {
			t.Parallel()
			j := openStore(t, pgtest.DSN(t), postgres.Config{CachedStatements: cached}).TestJournal()
			random := rand.New(rand.NewPCG(1, 2))
			var all []journal.Envelope
			numbers := map[string]uint64{}
			for range 150 {
				id := fmt.Sprintf("%s|%d", []string{"a", "ab", "ü", "a|b", "refold.own"}[random.IntN(5)], random.IntN(20))
				write := eventsOf(id, numbers[id], 1+random.IntN(12))
				for i := range write.Events {
					randomEvent(&write.Events[i], random)
				}
				store(t, j, write)
				for _, e := range write.Events {
					all = append(all, journal.Envelope{Event: e, ID: id})
				}
				numbers[id] += uint64(len(write.Events))
			}
			for id, n := range numbers {
				if random.IntN(3) > 0 {
					continue
				}
				to := n / 2
				if err := j.DeleteTo(t.Context(), id, to); err != nil {
					t.Fatal(err)
				}
				for i := range all {
					if all[i].ID == id && all[i].SequenceNr <= to {
						all[i].Manifest = "" // an event without a manifest is a fence
					}
				}
			}
			for _, types := range [][]string{nil, {"a"}, {"ab"}, {"ü"}, {"b"}, {"a|b"}, {"none"}, {"ü", "a"}, {"refold.own"}, {"refold.own", "ab", "b"}} {
				for _, tag := range []string{"", "red", "green", "rare", "none"} {
					for _, s := range []journal.Slices{{}, {First: 0, Count: 1}, {First: 100, Count: 64}, {First: 0, Count: 128}, {First: 512, Count: 512}, {First: 0, Count: 1024}} {
						checkQuery(t, j, journal.Criteria{Types: types, Tag: tag, Slices: s}, all)
					}
				}
			}
		})
	}
}

func randomEvent(e *journal.Event, random *rand.Rand) {
	e.Metadata = [][]byte{nil, []byte("meta")}[random.IntN(2)]
	e.Tags = [][]string{nil, {"red"}, {"green", "red"}, {"rare", "größe", "blue"}}[[]int{0, 0, 0, 1, 1, 2, 3}[random.IntN(7)]]
	if random.IntN(10) == 0 { // a fence
		e.Manifest, e.Payload, e.Tags, e.Metadata = "", nil, nil, nil
	}
}

func checkQuery(t *testing.T, j *postgres.Journal, q journal.Criteria, all []journal.Envelope) {
	t.Helper()
	if q.Check() != nil {
		if _, err := j.Query(t.Context(), q, ""); !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", q, err)
		}
		return
	}
	var want []journal.Envelope
	for _, e := range all {
		if e.Manifest != "" && q.Matches(e.ID, e.Tags) {
			want = append(want, e)
		}
	}
	got, next := readAll(t, j, q, "")
	if len(got) != len(want) {
		t.Errorf("%+v: %d events, want %d", q, len(got), len(want))
		return
	}
	var last journal.Offset
	for i := range got {
		if fmt.Sprint(got[i].ID, got[i].SequenceNr, got[i].Time, got[i].Writer, got[i].Manifest, got[i].Tags) != fmt.Sprint(want[i].ID, want[i].SequenceNr, want[i].Time, "w", want[i].Manifest, want[i].Tags) ||
			!bytes.Equal(got[i].Payload, want[i].Payload) || !bytes.Equal(got[i].Metadata, want[i].Metadata) {
			t.Errorf("%+v: event %d is %+v, want %+v", q, i, got[i], want[i])
			return
		}
		if got[i].Offset.Compare(last) <= 0 || got[i].Offset.Compare(next) > 0 {
			t.Errorf("%+v: event %d is at %q, after %q, the end is %q", q, i, got[i].Offset, last, next)
		}
		last = got[i].Offset
	}
	if end, err := j.End(t.Context()); err != nil || end != next {
		t.Errorf("%+v: read up to %q, want the end %q (%v)", q, next, end, err)
	}
}

// TestPages reads more than one page with each index, at and around the limits of a page.
func TestPages(t *testing.T) {
	t.Parallel()
	j := openStore(t, pgtest.DSN(t), postgres.Config{}).TestJournal()
	store(t, j, eventsOf("small|1", 0, 2001, "tag"))
	large := eventsOf("large|1", 0, 7, "large")
	for i := range large.Events {
		large.Events[i].Payload = make([]byte, 300<<10)
	}
	large.Events[6].Payload = make([]byte, 4<<20)
	store(t, j, large)
	few, many := journal.Slices{First: journal.SliceOf("small|1"), Count: 1}, journal.Slices{First: 0, Count: 512}
	if journal.SliceOf("small|1") >= 512 {
		many.First = 512
	}
	for _, q := range []journal.Criteria{{Types: []string{"small"}}, {Tag: "tag"}, {Types: []string{"small"}, Tag: "tag"}, {Slices: few, Types: []string{"small"}}, {Slices: many, Types: []string{"small"}}} {
		checkPages(t, j, q, 1000, 1000, 1)
	}
	for _, q := range []journal.Criteria{{Types: []string{"large"}}, {Tag: "large"}, {Slices: journal.Slices{First: journal.SliceOf("large|1"), Count: 1}}} {
		checkPages(t, j, q, 4, 3)
	}
}

func checkPages(t *testing.T, j *postgres.Journal, q journal.Criteria, sizes ...int) {
	t.Helper()
	var got []int
	var after journal.Offset
	for more := true; more; {
		page, err := j.Query(t.Context(), q, after)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Events) > 0 {
			got = append(got, len(page.Events))
		}
		after, more = page.Next, page.More
	}
	if fmt.Sprint(got) != fmt.Sprint(sizes) {
		t.Errorf("%+v: pages of %v events, want %v", q, got, sizes)
	}
}

// TestPlans checks the plans of the statements with and without statistics of the table.
func TestPlans(t *testing.T) {
	t.Parallel()
	const events = 60_000
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	conn := connect(t, dsn)
	execute(t, conn, "ALTER TABLE refold.events SET (autovacuum_enabled = false)")
	execute(t, conn, "ALTER TABLE refold.tags SET (autovacuum_enabled = false)")
	execute(t, conn, `INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload)
		SELECT (CASE WHEN i % 1000 = 0 THEN 'rare|' WHEN i % 7 = 0 THEN 'refold.own|' ELSE 'usual|' END) || i % 5000, i / 5000 + 1, i, (i % 5000 * 7919) % 1024, now(), 'w', 'm', '\x00'
		FROM generate_series(1, $1::int) i`, events)
	execute(t, conn, `INSERT INTO refold.tags SELECT 'tag', i FROM generate_series(1, $1::int, 2) i`, events)
	for _, known := range []bool{false, true} {
		if known {
			execute(t, conn, "ANALYZE refold.events, refold.tags")
		}
		for _, c := range []struct {
			q    journal.Criteria
			rows float64 // of a table or an index, at most
		}{
			{journal.Criteria{}, 1_600},
			{journal.Criteria{Types: []string{"rare"}}, 10_100},
			{journal.Criteria{Types: []string{"rare", "none"}}, 10_100},
			{journal.Criteria{Tag: "tag"}, 26_300}, // in the index; 1,170 in the table
			{journal.Criteria{Tag: "tag", Types: []string{"rare"}}, 10_100},
			{journal.Criteria{Tag: "tag", Types: []string{"rare", "none"}}, 10_100},
			{journal.Criteria{Slices: journal.Slices{First: 3, Count: 1}}, 1_700},
			{journal.Criteria{Slices: journal.Slices{First: 64, Count: 64}}, 1_700},
			{journal.Criteria{Slices: journal.Slices{First: 256, Count: 256}}, 1_700},
			{journal.Criteria{Slices: journal.Slices{First: 256, Count: 256}, Types: []string{"rare"}}, 10_700},
		} {
			sql, params := db.QueryStatement(c.q, events/10, events)
			if window, _ := params[2].(int64); window > 200_000 {
				t.Errorf("%+v has a window of %d ordinals, want at most 200,000", c.q, window)
			}
			var plan []byte
			if err := conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+sql, params...).Scan(&plan); err != nil {
				t.Fatal(err)
			}
			var parsed []struct{ Plan node }
			if err := json.Unmarshal(plan, &parsed); err != nil {
				t.Fatal(err)
			}
			if rows := parsed[0].Plan.examined(); rows > c.rows || bytes.Contains(plan, []byte("Seq Scan")) {
				t.Errorf("%+v (analyzed: %v) reads %v rows, want at most %v:\n%s", c.q, known, rows, c.rows, plan)
			}
		}
	}
}

// node is one node of a plan.
type node struct {
	Type    string  `json:"Node Type"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Plans   []node
}

// examined returns the number of examined rows of tables and indexes.
func (n *node) examined() float64 {
	var rows float64
	if strings.Contains(n.Type, "Index") || strings.Contains(n.Type, "Seq") {
		rows = (n.Rows + n.Removed) * n.Loops
	}
	for i := range n.Plans {
		rows += n.Plans[i].examined()
	}
	return rows
}
