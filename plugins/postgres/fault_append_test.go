// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// breakage is a network fault during one append.
type breakage struct {
	fault tcpproxy.Fault
	// endContext ends the context of the caller when the fault occurs.
	endContext bool
	// frozen stops all bytes after the fault, so that no cancel request reaches the server.
	frozen bool
	// fence settles unknown outcomes before the delayed bytes have arrived.
	fence bool
}

func (b breakage) String() string {
	return fmt.Sprintf("%v, context ends: %v, frozen: %v, fence: %v", b.fault, b.endContext, b.frozen, b.fence)
}

// kinds returns the breakages of one position.
func kinds(direction tcpproxy.Direction, after int64) []breakage {
	fault := func(a tcpproxy.Action, both bool) tcpproxy.Fault {
		return tcpproxy.Fault{Direction: direction, After: after, Action: a, Both: both}
	}
	return []breakage{
		{fault: fault(tcpproxy.Cut, false)},
		{fault: fault(tcpproxy.Cut, false), fence: true},
		{fault: fault(tcpproxy.Reset, false)},
		{fault: fault(tcpproxy.Reset, false), endContext: true, fence: true},
		{fault: fault(tcpproxy.Stall, false), endContext: true},
		{fault: fault(tcpproxy.Stall, false), endContext: true, fence: true},
		{fault: fault(tcpproxy.Stall, true), endContext: true, frozen: true, fence: true},
		{fault: fault(tcpproxy.Drop, false), endContext: true},
		{fault: fault(tcpproxy.Drop, true), endContext: true, frozen: true, fence: true},
	}
}

// outcomes counts the results of appends and fences.
type outcomes struct{ stored, not, unknown, fenced, landed atomic.Int64 }

// TestAppendBrokenAtEachByte breaks the connection at the positions of the exchange of an append,
// in both directions and in all ways. The result of the append agrees with the final contents of
// the table. A fence settles an unknown outcome permanently, even if the bytes of the write arrive
// at the server later.
func TestAppendBrokenAtEachByte(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]postgres.Config{"plain": {}, "cached statements": {CachedStatements: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.CheckOnly, cfg.DisableNotify, cfg.MaxConns = true, true, 1
			breakAppends(t, cfg)
		})
	}
}

func breakAppends(t *testing.T, cfg postgres.Config) {
	t.Helper()
	s := newTarget(t, pgtest.DSN(t))
	toServer, toClient := s.exchange(t, cfg)
	var all []breakage
	for direction, size := range map[tcpproxy.Direction]int64{tcpproxy.ToServer: toServer, tcpproxy.ToClient: toClient} {
		step := int64(1)
		if !effort.Soak() {
			step = 1 + size/3
		}
		part := 0 // each of the two configurations has half of the breakages of a position
		if cfg.CachedStatements {
			part = 1
		}
		for after := int64(0); after <= size; after++ {
			ends := after < 2 || after > size-3 // near the ends, each byte matters most
			if after%step != 0 && !ends {
				continue
			}
			for i, b := range kinds(direction, after) {
				if effort.Soak() || i%2 == part {
					all = append(all, b)
				}
			}
			part = 1 - part
		}
	}
	var counts outcomes
	each(len(all), 32, func(i int) {
		if !t.Failed() {
			s.breakAppend(t, cfg, all[i], fmt.Sprintf("%06d", i), &counts)
		}
	})
	t.Logf("an exchange has %d bytes to the server and %d to the client; writes: %d stored, %d not stored, %d unknown; fences settled %d of them as not stored and %d as stored",
		toServer, toClient, counts.stored.Load(), counts.not.Load(), counts.unknown.Load(), counts.fenced.Load(), counts.landed.Load())
	for subject, n := range map[string]int64{"stored": counts.stored.Load(), "unknown": counts.unknown.Load(), "fenced": counts.fenced.Load(), "landed": counts.landed.Load()} {
		if n == 0 {
			t.Errorf("the number of writes that were %s is 0, want at least 1", subject)
		}
	}
}

// The result of an append that is canceled while it waits for another transaction is "not stored",
// because the server reported so. Nothing is stored after the end of that transaction.
func TestAppendWithEndedContextIsCanceled(t *testing.T) {
	t.Parallel()
	s := newTarget(t, pgtest.DSN(t))
	for _, other := range []string{"a", "b"} {
		_, db, err := s.openThroughProxy(t, "waits "+other, postgres.Config{CheckOnly: true, MaxConns: 1}.WithCancelGrace(5*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		blocker := connect(t, pgtest.With(t, s.dsn, map[string]string{"application_name": "blocker " + other}))
		execute(t, blocker, "BEGIN")
		execute(t, blocker, "INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload) VALUES ($1, 1, nextval('refold.ordinals'), 0, now(), '', '', '')", other)
		ctx, endContext := withHangTimeout(t)
		counts := make(chan []error)
		go func() {
			counts <- db.TestJournal().Append(ctx, []journal.Write{eventsOf("a", 0, 1), eventsOf("b", 0, 2)})
		}()
		until(t, "a blocked append", func() bool { return s.blocks(t, "blocker "+other) })
		endContext()
		for i, err := range <-counts {
			if !journal.NotStored(err) || !errors.Is(err, context.Canceled) {
				t.Errorf("write %d: %v, want a certain error that matches context.Canceled", i, err)
			}
		}
		execute(t, blocker, "ROLLBACK")
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		s.awaitSessionsEnded(t, "waits "+other)
		if a, b := s.rows(t, "a"), s.rows(t, "b"); len(a)+len(b) > 0 {
			t.Errorf("canceled writes are stored: %v, %v", a, b)
		}
	}
}

// brokenWrites returns the writes of an append. The first two are of one ID.
func brokenWrites(name string) []journal.Write {
	return []journal.Write{eventsOf("a|"+name, 1, 2, "red", "green"), eventsOf("a|"+name, 3, 1), eventsOf("b|"+name, 0, 1)}
}

// exchange returns the number of bytes of an append in each direction.
func (s *target) exchange(t *testing.T, cfg postgres.Config) (toServer, toClient int64) {
	t.Helper()
	proxy, db, err := s.openThroughProxy(t, "measure", cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the connection was not broken
	j := db.TestJournal()
	store(t, j, eventsOf("a|measur", 0, 1))
	before := proxy.Stats()
	store(t, j, brokenWrites("measur")...)
	after := proxy.Stats()
	return after.ToServer - before.ToServer, after.ToClient - before.ToClient
}

// breakAppend runs one append with a fault and checks its result.
func (s *target) breakAppend(t *testing.T, cfg postgres.Config, b breakage, name string, counts *outcomes) {
	t.Helper()
	server := "broken " + name
	proxy, db, err := s.openThroughProxy(t, server, cfg)
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	j := db.TestJournal()
	if errs := j.Append(t.Context(), []journal.Write{eventsOf("a|"+name, 0, 1)}); errs != nil {
		t.Errorf("the first append: %v", errs)
		return
	}
	writes := brokenWrites(name)
	ctx, cancel := withHangTimeout(t)
	defer cancel()
	armed := proxy.Arm(b.fault)
	struck := make(chan struct{})
	go func() {
		defer close(struck)
		select {
		case <-armed.Struck():
			if b.frozen {
				proxy.SetFrozen(true)
			}
			if b.endContext {
				cancel()
			}
		case <-ctx.Done():
		}
	}()
	errs := j.Append(ctx, writes)
	cancel()
	<-struck
	if errs == nil {
		errs = make([]error, len(writes))
	}
	settled := make(chan []error, 1)
	go func() { settled <- s.fence(t, b, writes, errs) }()
	fences := s.release(t, server, settled, func() {
		armed.Release()
		proxy.SetFrozen(false)
	})
	if err := db.Close(); err != nil {
		t.Errorf("%v: close: %v", b, err)
	}
	if s.awaitSessionsEnded(t, server) {
		s.checkResults(t, b, writes, errs, fences, counts)
	}
}

// fence appends a fence for each ID with an unknown outcome, without the proxy. The result has nil
// for a stored fence, and errNoFence if none was appended.
func (s *target) fence(t *testing.T, b breakage, writes []journal.Write, errs []error) []error {
	t.Helper()
	fences := make([]error, len(writes))
	for i, w := range writes {
		fences[i] = errNoFence
		if unknown := errs[i] != nil && !journal.NotStored(errs[i]); !b.fence || !unknown || i > 0 && writes[i-1].ID == w.ID && errs[i-1] != nil {
			continue
		}
		fences[i] = nil
		if slots := s.direct.TestJournal().Append(t.Context(), []journal.Write{fenceAt(w)}); slots != nil {
			fences[i] = slots[0]
		}
	}
	return fences
}

var errNoFence = errors.New("no fence was appended")

// release ends the fault when the fences are settled, or when they wait for a transaction whose end
// is delayed by the fault.
func (s *target) release(t *testing.T, server string, settled <-chan []error, release func()) []error {
	t.Helper()
	var fences []error
	until(t, "fences", func() bool {
		select {
		case fences = <-settled:
			return true
		default:
			return s.blocks(t, server)
		}
	})
	release()
	if fences == nil {
		fences = <-settled
	}
	return fences
}

// blocks reports whether a session waits for a transaction of these connections.
func (s *target) blocks(t *testing.T, server string) bool {
	t.Helper()
	var blocks bool
	if err := s.tables.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity AS waiting, unnest(pg_blocking_pids(waiting.pid)) AS blocking
		JOIN pg_stat_activity AS held ON held.pid = blocking WHERE waiting.wait_event_type = 'Lock' AND held.datname = current_database() AND held.application_name = $1)`, server).Scan(&blocks); err != nil {
		t.Errorf("query the locks: %v", err)
	}
	return blocks
}

// checkResults compares the results with the table.
func (s *target) checkResults(t *testing.T, b breakage, writes []journal.Write, errs, fences []error, counts *outcomes) {
	t.Helper()
	for i, w := range writes {
		rows := s.rows(t, w.ID)
		there := 0
		for _, e := range w.Events {
			for _, r := range rows {
				if r.SeqNr == int64(e.SequenceNr) && r.Writer == w.Writer && r.Manifest == e.Manifest && bytes.Equal(r.Payload, e.Payload) {
					there++
				}
			}
		}
		whole := there == len(w.Events)
		switch {
		case there > 0 && !whole:
			t.Errorf("%v: write %d is stored in part: %v", b, i, rows)
		case errs[i] == nil && !whole:
			t.Errorf("%v: write %d was acknowledged but is lost: %v", b, i, rows)
		case errs[i] != nil && journal.NotStored(errs[i]) && whole:
			t.Errorf("%v: write %d is stored although the append returned %v: %v", b, i, errs[i], rows)
		case fences[i] == nil && whole: // the fence was stored
			t.Errorf("%v: write %d was stored after its fence: %v", b, i, rows)
		case errors.Is(fences[i], journal.ErrConflict) && !whole:
			t.Errorf("%v: write %d is not stored, but its fence returned %v: %v", b, i, fences[i], rows)
		case fences[i] != nil && !errors.Is(fences[i], journal.ErrConflict) && !errors.Is(fences[i], errNoFence):
			t.Errorf("%v: fence: %v", b, fences[i])
		}
		for k, r := range rows {
			if r.SeqNr != int64(k)+1 {
				t.Errorf("%v: the rows have a gap: %v", b, rows)
			}
		}
		switch {
		case errs[i] == nil:
			counts.stored.Add(1)
		case journal.NotStored(errs[i]):
			counts.not.Add(1)
		default:
			counts.unknown.Add(1)
			if b.endContext != errors.Is(errs[i], context.Canceled) && !errors.Is(errs[i], journal.ErrUnavailable) {
				t.Errorf("%v: the outcome is unknown: %v", b, errs[i])
			}
		}
		switch {
		case fences[i] == nil:
			counts.fenced.Add(1)
		case errors.Is(fences[i], journal.ErrConflict):
			counts.landed.Add(1)
		}
	}
}
