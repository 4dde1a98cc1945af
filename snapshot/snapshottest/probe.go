// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/snapshot"
)

type probe struct {
	testing.TB

	cfg   Config
	store snapshot.Store
	// id is a persistence ID that no other check uses.
	id string
}

// at returns a time that is whole microseconds and neither a whole second nor a whole millisecond,
// to detect a store that rounds.
func at(n int) time.Time {
	return time.Date(2026, time.March, 14, 15, 9, 26, 535_897_000, time.UTC).Add(time.Duration(n) * time.Second)
}

// numbered returns the snapshot that a case uses at a sequence number.
func numbered(id string, seqNr uint64) snapshot.Snapshot {
	return snapshot.Snapshot{
		Metadata: snapshot.Metadata{ID: id, SequenceNr: seqNr, Time: at(int(seqNr % 1_000_000))},
		Manifest: fmt.Sprintf("state-%d", seqNr),
		Payload:  fmt.Appendf(nil, "s-%d of %s", seqNr, id),
	}
}

// baseline saves the snapshots 11 to 15.
func (p *probe) baseline() {
	p.Helper()
	for n := uint64(11); n <= 15; n++ {
		p.save(numbered(p.id, n))
	}
}

func (p *probe) save(s snapshot.Snapshot) {
	p.Helper()
	if err := p.store.Save(p.Context(), s); err != nil {
		p.Fatalf("Save at %d: %v", s.SequenceNr, err)
	}
}

func (p *probe) delete(id string, c snapshot.Criteria) {
	p.Helper()
	if err := p.store.Delete(p.Context(), id, c); err != nil {
		p.Fatalf("Delete(%s): %v", show(c), err)
	}
}

// expect loads a snapshot and compares all of its fields with want.
func (p *probe) expect(c snapshot.Criteria, want snapshot.Snapshot) {
	p.Helper()
	got, err := p.store.Load(p.Context(), want.ID, c)
	if err != nil {
		p.Errorf("Load(%s): %v, want the snapshot at %d", show(c), err, want.SequenceNr)
		return
	}
	p.compare(c, got, want)
}

// expectNumber loads a snapshot and compares it with the result of numbered.
func (p *probe) expectNumber(c snapshot.Criteria, seqNr uint64) {
	p.Helper()
	p.expect(c, numbered(p.id, seqNr))
}

func (p *probe) compare(c snapshot.Criteria, got, want snapshot.Snapshot) {
	p.Helper()
	if got.ID != want.ID || got.SequenceNr != want.SequenceNr {
		p.Errorf("Load(%s) = %q at %d, want %q at %d", show(c), got.ID, got.SequenceNr, want.ID, want.SequenceNr)
		return
	}
	if !sameTime(got.Time, want.Time) {
		p.Errorf("Load(%s) at %d: time %v, want %v", show(c), got.SequenceNr, got.Time, want.Time)
	}
	if got.Manifest != want.Manifest {
		p.Errorf("Load(%s) at %d: manifest %q, want %q", show(c), got.SequenceNr, got.Manifest, want.Manifest)
	}
	if !bytes.Equal(got.Payload, want.Payload) {
		p.Errorf("Load(%s) at %d: payload of %d bytes %.40q, want %d bytes %.40q", show(c), got.SequenceNr,
			len(got.Payload), got.Payload, len(want.Payload), want.Payload)
	}
}

// sameTime reports whether two times are the same instant and both in UTC.
func sameTime(got, want time.Time) bool {
	return got.Equal(want) && got.Location() == time.UTC
}

func (p *probe) expectNone(id string, c snapshot.Criteria) {
	p.Helper()
	p.expectError(id, c, snapshot.ErrNotFound)
}

// expectError checks that a Load fails with an error that matches want. The error must not match
// ErrNotFound unless want is ErrNotFound.
func (p *probe) expectError(id string, c snapshot.Criteria, want error) {
	p.Helper()
	got, err := p.store.Load(p.Context(), id, c)
	switch notFound := errors.Is(err, snapshot.ErrNotFound); {
	case err == nil:
		p.Errorf("Load(%s) = the snapshot at %d, want the error %q", show(c), got.SequenceNr, want)
	case !errors.Is(err, want), notFound != (want == snapshot.ErrNotFound): //nolint:errorlint // identity
		p.Errorf("Load(%s): %v, want a match of %q", show(c), err, want)
	}
}

// expectList lists and compares the sequence numbers, with their order.
func (p *probe) expectList(id string, c snapshot.Criteria, want ...uint64) {
	p.Helper()
	var got []uint64
	for m, err := range p.store.List(p.Context(), id, c) {
		if err != nil {
			p.Errorf("List(%s): %v", show(c), err)
			return
		}
		if m.ID != id || !sameTime(m.Time, numbered(id, m.SequenceNr).Time) {
			p.Errorf("List(%s): %q at %d with time %v, want %q with %v", show(c), m.ID, m.SequenceNr, m.Time, id, numbered(id, m.SequenceNr).Time)
		}
		got = append(got, m.SequenceNr)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.Errorf("List(%s) = %v, want %v", show(c), got, want)
	}
}

func show(c snapshot.Criteria) string {
	latest := snapshot.Latest()
	text := fmt.Sprintf("%d..%d", c.MinSequenceNr, c.MaxSequenceNr)
	if !c.MinTime.Equal(latest.MinTime) || !c.MaxTime.Equal(latest.MaxTime) {
		text += fmt.Sprintf(", %s..%s", c.MinTime.Format(time.RFC3339Nano), c.MaxTime.Format(time.RFC3339Nano))
	}
	return text
}
