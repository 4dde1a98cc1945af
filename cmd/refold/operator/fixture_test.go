// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// at is the time of the n-th event.
func at(n uint64) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// pack encodes a value as msgpack. Equal values have equal encodings.
func pack(tb testing.TB, v any) []byte {
	tb.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.SetSortMapKeys(true)
	if err := enc.Encode(v); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// fixture fills a LevelDB journal.
type fixture struct {
	t   testing.TB
	dir string
	db  *leveldb.DB
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	dir := tb.TempDir()
	db, err := leveldb.Open(dir, leveldb.Config{NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	f := &fixture{t: tb, dir: dir, db: db}
	tb.Cleanup(f.close)
	return f
}

// close closes the journal, so that commands can open it.
func (f *fixture) close() {
	f.t.Helper()
	if err := f.db.Close(); err != nil {
		f.t.Error(err)
	}
}

// record appends one record to an ID.
func (f *fixture) record(id string, e journal.Event) {
	f.t.Helper()
	highest, err := f.db.Journal().HighestSequenceNr(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	e.SequenceNr, e.Time = highest+1, at(highest+1)
	if slots := f.db.Journal().Append(f.t.Context(), []journal.Write{{ID: id, Writer: "w1", Expect: highest, Events: []journal.Event{e}}}); slots != nil {
		f.t.Fatal(slots[0])
	}
}

// event appends one event of an account.
func (f *fixture) event(id string, v any, tags ...string) {
	f.t.Helper()
	manifest, payload, err := events().Encode(v)
	if err != nil {
		f.t.Fatal(err)
	}
	f.record(id, journal.Event{Manifest: manifest, Payload: payload, Tags: tags})
}

// state saves a snapshot of an account.
func (f *fixture) state(id string, seqNr uint64, payload []byte) {
	f.t.Helper()
	f.snapshot(id, seqNr, eventsourcing.StateManifest, payload)
}

func (f *fixture) snapshot(id string, seqNr uint64, manifest string, payload []byte) {
	f.t.Helper()
	s := snapshot.Snapshot{Manifest: manifest, Payload: payload}
	s.Metadata = snapshot.Metadata{ID: id, SequenceNr: seqNr, Time: at(seqNr)}
	if err := f.db.Snapshots().Save(f.t.Context(), s); err != nil {
		f.t.Fatal(err)
	}
}

// bank returns a journal without faults.
func bank(tb testing.TB) *fixture {
	tb.Helper()
	f := newFixture(tb)
	f.event("account|1", opened{Owner: "Ada"}, "customer")
	f.event("account|1", deposited{Amount: 100, Currency: "USD"}, "usd", "large")
	f.record("account|1", journal.Event{Manifest: "deposited", Payload: pack(tb, map[string]any{"Amount": 20})})
	f.state("account|1", 3, pack(tb, map[string]any{"Owner": "Ada", "Balance": map[string]any{"USD": 120}, "Last": []int{100, 20}}))
	f.record("account|1", journal.Event{}) // a fence
	f.event("account|1", withdrawn{Amount: 50})
	f.event("account|1", deposited{Amount: 3200, Currency: "TWD"})

	f.event("account|2", opened{Owner: "Bob\x1b[2J\u202e\xff\"q\""})

	f.event("account|3", opened{Owner: "Eve"})
	f.event("account|3", deposited{Amount: 7, Currency: "USD"})
	f.event("account|3", deposited{Amount: 8, Currency: "USD"})
	f.state("account|3", 2, pack(tb, map[string]any{"Owner": "Eve", "Balance": map[string]any{"USD": 7}, "Last": []int{7}}))
	if err := f.db.Journal().DeleteTo(tb.Context(), "account|3", 2); err != nil {
		tb.Fatal(err)
	}

	f.record("ledger|main", journal.Event{Manifest: "noted+json", Payload: []byte("{ \"text\": \"caf\u00e9 \u009b1m <b>\", \"n\": [1, 2.50] }")})
	f.record("ledger|main", journal.Event{Manifest: "posted@3+proto", Payload: []byte{8, 1}})
	f.record("ledger|main", journal.Event{Manifest: "mixed", Metadata: []byte("trace"), Payload: pack(tb, []any{
		nil, true, -3, uint64(1 << 63), 1.0, float32(2.5), "x", []byte{0, 1, 255}, noon, map[int]string{7: "seven"},
	})})
	return f
}

// doubtful returns a journal in which each entity has a fault.
func doubtful(tb testing.TB) *fixture {
	tb.Helper()
	f := newFixture(tb)
	f.event("account|wrong", opened{Owner: "Ada"})
	f.event("account|wrong", deposited{Amount: 100, Currency: "USD"})
	f.state("account|wrong", 2, pack(tb, map[string]any{
		"Owner": "Ida", "Balance": map[string]any{"USD": 100, "T W\u202eD": 1}, "Last": []int{},
	}))
	f.event("account|wrong", withdrawn{Amount: 1})

	f.event("account|unread", opened{Owner: "Ada"})
	f.event("account|unread", deposited{Amount: 100, Currency: "USD"})
	f.state("account|unread", 1, pack(tb, map[string]any{"Owner": "Ada", "Balance": map[string]any{}}))
	f.state("account|unread", 2, pack(tb, map[string]any{"Owner": 7}))

	f.record("account|text", journal.Event{Manifest: "opened", Payload: []byte("not\tmsgpack")})
	f.state("account|text", 1, []byte("{}"))

	f.event("account|above", opened{Owner: "Ada"})
	f.state("account|above", 2, pack(tb, map[string]any{"Owner": "Ada"}))

	f.event("vault|json", deposited{Amount: 1})
	f.snapshot("vault|json", 1, "safe+json", []byte(`{ "sum": 2 }`))
	f.event("vault|raw", deposited{Amount: 1})
	f.snapshot("vault|raw", 1, "safe+own", []byte{2})
	return f
}
