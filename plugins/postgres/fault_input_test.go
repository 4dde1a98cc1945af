// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// oddIDs returns persistence IDs that are similar and all distinct.
func oddIDs() []string {
	return []string{
		"é", "e\u0301", "É", "e", "E", " e", "e ", "e\t", "e\n", "\u00a0e", "a|b", "a|b|c", "|", "||", "%", "_", "a%", `\`, `\x00`, `'`, `"`, `''; DROP TABLE refold.events; --`,
		"$1", "{}", "{NULL}", "NULL", "null", "\ufeff", "\uffff", "\U0010ffff", "\u202eabc", "\u200d", "👩‍👩‍👧‍👧", "ß", "ss", "ı", "i", "İ", "ﬁ", "fi", "\x01", "\x7f", "\u0080",
		strings.Repeat("x", journal.MaxIDLength), strings.Repeat("x", journal.MaxIDLength-1), strings.Repeat("\U0010ffff", journal.MaxIDLength/4),
	}
}

// TestOddIDs stores events of unusual IDs, which are also the names and tags, together with invalid
// IDs. Each valid ID has its own history and is returned unchanged, in byte order.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	db := openStore(t, pgtest.DSN(t), postgres.Config{})
	j := db.TestJournal()
	ids := oddIDs()
	var writes []journal.Write
	for i, id := range ids {
		w := eventsOf(id, 0, 1+i%3, id, "all")
		w.Writer, w.Events[0].Manifest, w.Events[0].Metadata = id, "m"+id, []byte("\x00"+id)
		writes = append(writes, w)
	}
	bad := []string{"", " ", "\x00", "a\x00", "\x00a", "a\xff", "\xed\xa0\x80", "\xc0\x80", strings.Repeat("x", journal.MaxIDLength+1)}
	for _, id := range bad {
		writes = append(writes, eventsOf(id, 0, 1))
	}
	errs := j.Append(t.Context(), writes)
	for i, w := range writes {
		if i < len(ids) && (errs == nil || errs[i] != nil) {
			t.Errorf("%q: %v", w.ID, errs[i])
		}
		if i >= len(ids) && !errors.Is(errs[i], journal.ErrRejected) {
			t.Errorf("Append to %q: %v, want ErrRejected", w.ID, errs[i])
		}
	}
	for i, id := range ids {
		var got []journal.Event
		for e, err := range j.Replay(t.Context(), id, 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatalf("replay %q: %v", id, err)
			}
			got = append(got, e)
		}
		if len(got) != 1+i%3 || got[0].Writer != id || got[0].Manifest != "m"+id || string(got[0].Metadata) != "\x00"+id || got[0].Tags[0] != id || string(got[0].Payload) != id+"/1" {
			t.Errorf("events of %q = %+v", id, got)
		}
	}
	var listed []string
	for id, err := range j.PersistenceIDs(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, id)
	}
	if want := slices.Sorted(slices.Values(ids)); !slices.Equal(listed, want) {
		t.Errorf("PersistenceIDs yields\n%q, want\n%q", listed, want)
	}
	for _, id := range bad {
		if _, err := j.HighestSequenceNr(t.Context(), id); !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("highest of %q: %v, want ErrInvalid", id, err)
		}
	}
}

// A write with an invalid name is rejected, and the other writes of the call are stored.
func TestOddNames(t *testing.T) {
	t.Parallel()
	j := openStore(t, pgtest.DSN(t), postgres.Config{}).TestJournal()
	for i, odd := range []string{"\x00", "a\x00b", "\xff", "a\xc3"} {
		writes := make([]journal.Write, 6)
		for k := range writes {
			writes[k] = eventsOf(fmt.Sprintf("%d|%d", i, k), 0, 2)
		}
		writes[1].Writer = odd
		writes[2].Events[1].Manifest = odd
		writes[3].Events[0].Tags = []string{"fine", odd}
		writes[4].Events[0].Payload, writes[4].Events[0].Metadata = []byte(odd), []byte(odd) // payload and metadata may be any bytes
		errs := j.Append(t.Context(), writes)
		for k := range writes {
			if err := errs[k]; (k >= 1 && k <= 3) != errors.Is(err, journal.ErrRejected) || k == 0 && err != nil {
				t.Errorf("%q in write %d: %v, want ErrRejected for writes 1 to 3 only", odd, k, err)
			}
		}
	}
}

// TestTenThousandTags stores an event with ten thousand tags and finds it by each of them. An event
// with too many tags is rejected.
func TestTenThousandTags(t *testing.T) {
	t.Parallel()
	j := openStore(t, pgtest.DSN(t), postgres.Config{}).TestJournal()
	tags := make([]string, 10_000)
	for i := range tags {
		tags[i] = fmt.Sprintf("t%04d", i)
	}
	many := slices.Repeat([]string{strings.Repeat("x", 100)}, 100_000)
	errs := j.Append(t.Context(), []journal.Write{eventsOf("a", 0, 1, tags...), eventsOf("b", 0, 1, many...), eventsOf("c", 0, 1, "t0000", "t0000", "")})
	if errs == nil || errs[0] != nil || !errors.Is(errs[1], journal.ErrRejected) || errs[2] != nil {
		t.Fatalf("append: %v, want ErrRejected for the second write only", errs)
	}
	for _, i := range []int{0, 1, 4999, 9999} {
		want := []string{"a/1"}
		if i == 0 {
			want = append(want, "c/1")
		}
		found, _ := readAll(t, j, journal.Criteria{Tag: tags[i]}, "")
		if !slices.Equal(named(found), want) || !slices.Equal(found[0].Tags, tags) {
			t.Errorf("a query by tag %s finds %v, want %v", tags[i], named(found), want)
		}
	}
	if found, _ := readAll(t, j, journal.Criteria{Tag: "t"}, ""); len(found) > 0 {
		t.Errorf("a query by an unused tag finds %v, want no event", named(found))
	}
	if err := j.DeleteTo(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	if found, _ := readAll(t, j, journal.Criteria{Tag: tags[9999]}, ""); len(found) > 0 {
		t.Errorf("a query finds the deleted events %v, want no event", named(found))
	}
}

// TestPayloads stores the largest event and rejects one more byte. The other writes of the call are
// stored.
func TestPayloads(t *testing.T) {
	t.Parallel()
	j := openStore(t, pgtest.DSN(t), postgres.Config{}).TestJournal()
	const most = 16 << 20
	payload := noise(most + 1)
	with := func(id string, payloads ...[]byte) journal.Write {
		w := eventsOf(id, 0, len(payloads))
		for i := range payloads {
			w.Events[i].Payload = payloads[i]
		}
		return w
	}
	unit := slices.Repeat([][]byte{payload[:most]}, 4)
	writes := []journal.Write{with("large", payload[:most]), with("too large", []byte("x"), payload), with("empty", nil, []byte{}), with("unit, too large", append(unit, []byte("x"))...)}
	if effort.Soak() {
		writes = append(writes, with("unit", unit...))
	}
	errs := j.Append(t.Context(), writes)
	if errs == nil || errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], journal.ErrRejected) || !errors.Is(errs[3], journal.ErrRejected) || effort.Soak() && errs[4] != nil {
		t.Fatalf("append: %v, want rejections of the writes that are too large", errs)
	}
	if rejected, ok := errors.AsType[*journal.RejectedError](errs[1]); !ok || rejected.SequenceNr != 2 || !strings.Contains(rejected.Error(), fmt.Sprint(most)) {
		t.Errorf("the write that is too large: %v, want a rejection of event 2 with the limit", errs[1])
	}
	for i, w := range writes {
		var got [][]byte
		for e, err := range j.Replay(t.Context(), w.ID, 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Payload)
		}
		if errs[i] != nil {
			w.Events = nil
		}
		if len(got) != len(w.Events) {
			t.Errorf("%s: %d events, want %d", w.ID, len(got), len(w.Events))
		}
		for k := range min(len(got), len(w.Events)) {
			if !bytes.Equal(got[k], w.Events[k].Payload) {
				t.Errorf("%s: event %d has %d bytes, want %d", w.ID, k+1, len(got[k]), len(w.Events[k].Payload))
			}
		}
	}
}

// TestClocks stores the times of wrong clocks unchanged. The event times of an entity do not
// decrease when the clock goes back.
func TestClocks(t *testing.T) {
	t.Parallel()
	db := openStore(t, pgtest.With(t, pgtest.DSN(t), map[string]string{"timezone": "Asia/Kathmandu"}), postgres.Config{})
	j := db.TestJournal()
	times := []time.Time{
		time.Date(2040, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2016, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	w := eventsOf("clock", 0, len(times))
	for i := range times {
		w.Events[i].Time = times[i]
	}
	ahead := journal.Write{ID: "ledger|ahead", Writer: "fast clock", Events: []journal.Event{{SequenceNr: 1, Time: times[0]}}} // a fence
	store(t, j, w, ahead)
	i := 0
	for e, err := range j.Replay(t.Context(), "clock", 1, journal.MaxSequenceNr) {
		if err != nil || !e.Time.Equal(times[i]) || e.Time.Location() != time.UTC {
			t.Errorf("time %v is read as %v, %v", times[i], e.Time, err)
		}
		i++
	}
	h := openLedgers(t, j, time.Minute)
	defer h.close(t)
	if _, err := eventsourcing.Ask(t.Context(), h.ledgers.Ref("ahead"), post{Op: 1, Count: 1}); err != nil {
		t.Fatal(err)
	}
	last := time.Time{}
	for e, err := range j.Replay(t.Context(), "ledger|ahead", 1, journal.MaxSequenceNr) {
		if err != nil || e.Time.Before(last) {
			t.Errorf("the time of event %d is %v, before %v: %v", e.SequenceNr, e.Time, last, err)
		}
		last = e.Time
	}
	if last.Before(times[0]) {
		t.Errorf("the last event time of the entity is %v, want at least %v", last, times[0])
	}
}
