// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/postgres"
)

// TestAskBrokenAtEachByte repeats TestAppendBrokenAtEachByte with a runtime on the journal. No
// outcome is unknown. While bytes are delayed, the caller receives a reply or an error. After these
// bytes have arrived, the table agrees with the reply or the error.
func TestAskBrokenAtEachByte(t *testing.T) {
	t.Parallel()
	s := newTarget(t, pgtest.DSN(t))
	var faults []tcpproxy.Fault
	toServer, toClient := s.askExchange(t)
	for direction, size := range map[tcpproxy.Direction]int64{tcpproxy.ToServer: toServer, tcpproxy.ToClient: toClient} {
		step := int64(1)
		if !effort.Soak() {
			step = size / 5
		}
		for after := int64(0); after <= size; after += step {
			for i, f := range []tcpproxy.Fault{
				{Action: tcpproxy.Cut}, {Action: tcpproxy.Reset}, {Action: tcpproxy.Stall}, {Action: tcpproxy.Stall, Both: true}, {Action: tcpproxy.Drop, Both: true},
			} {
				if f.Direction, f.After = direction, after; effort.Soak() || int64(i)%2 == after/step%2 {
					faults = append(faults, f)
				}
			}
		}
	}
	var done, not, fences atomic.Int64
	each(len(faults), 24, func(i int) {
		if t.Failed() {
			return
		}
		if s.breakAsk(t, faults[i], fmt.Sprintf("%06d", i), &fences) {
			done.Add(1)
		} else {
			not.Add(1)
		}
	})
	t.Logf("an exchange has %d bytes to the server and %d to the client; %d commands were executed, %d were not; %d fences were stored",
		toServer, toClient, done.Load(), not.Load(), fences.Load())
	if done.Load() == 0 || not.Load() == 0 || fences.Load() == 0 {
		t.Error("no command was executed, no command failed or no fence was stored; want at least 1 of each")
	}
}

// askExchange returns the approximate number of bytes of the append of an ask in each direction.
func (s *target) askExchange(t *testing.T) (toServer, toClient int64) {
	t.Helper()
	proxy, db, err := s.openThroughProxy(t, "measure", postgres.Config{CheckOnly: true, MaxConns: 2, DisableNotify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the connection was not broken
	h := openLedgers(t, db.TestJournal(), time.Minute)
	defer h.close(t)
	var before tcpproxy.Stats
	for op := range 2 {
		before = proxy.Stats()
		if _, err := eventsourcing.Ask(t.Context(), h.ledgers.Ref("measur"), post{Op: op, Count: 1 + op}); err != nil {
			t.Fatal(err)
		}
	}
	after := proxy.Stats()
	return after.ToServer - before.ToServer + 8, after.ToClient - before.ToClient + 8
}

// breakAsk runs one ask with a fault, compares the reply with the table, and reports whether the
// command was executed.
func (s *target) breakAsk(t *testing.T, fault tcpproxy.Fault, name string, fences *atomic.Int64) bool {
	t.Helper()
	server := "ask " + name
	proxy, db, err := s.openThroughProxy(t, server, postgres.Config{CheckOnly: true, MaxConns: 2, DisableNotify: true})
	if err != nil {
		t.Errorf("open: %v", err)
		return false
	}
	h := openLedgers(t, db.TestJournal(), 300*time.Millisecond)
	ctx, cancel := withHangTimeout(t)
	defer cancel()
	ref := h.ledgers.Ref(name)
	for { // nothing is broken yet, but a busy machine may take too long
		if _, err = eventsourcing.Ask(ctx, ref, post{Op: 0, Count: 1}); err == nil {
			break
		}
		if first := (result{err: err}); !first.notDone() || ctx.Err() != nil {
			t.Errorf("the first ask: %v", err)
			return false
		}
	}
	armed := proxy.Arm(fault)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, err = eventsourcing.Ask(ctx, ref, post{Op: 1, Count: 2})
	}()
	until(t, "a reply", func() bool {
		select {
		case <-answered:
			return true
		default:
			return s.blocks(t, server) // by a transaction whose end is held back
		}
	})
	armed.Release()
	<-answered
	h.close(t)
	if closeErr := db.Close(); closeErr != nil {
		t.Errorf("%v: close: %v", fault, closeErr)
	}
	if !s.awaitSessionsEnded(t, server) {
		return false
	}
	rows := s.rows(t, "ledger|"+name)
	stored := 0
	for i, r := range rows {
		if r.SeqNr != int64(i)+1 {
			t.Errorf("%v: the rows have a gap: %v", fault, rows)
		}
		if r.Manifest == "" {
			fences.Add(1)
		} else {
			stored++
		}
	}
	was := result{err: err}
	switch {
	case err == nil && stored != 3:
		t.Errorf("%v: the command was acknowledged, but the table has %v", fault, rows)
	case was.notDone() && stored != 1:
		t.Errorf("%v: the command was executed although the ask returned %v: %v", fault, err, rows)
	case err != nil && !was.notDone():
		t.Errorf("%v: the outcome is unknown: %v", fault, err)
	}
	return err == nil
}
