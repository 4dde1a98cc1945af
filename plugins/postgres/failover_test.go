// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// TestFailover kills the primary under load, promotes its synchronous standby, and makes a new
// standby from the new primary. In two of three rounds the standby is away for a while, in which
// contexts end while their appends wait. No acknowledged event is missing after a promotion, no
// event is stored twice, and live readers skip no event.
func TestFailover(t *testing.T) {
	t.Parallel()
	promotions := 3
	if effort.Soak() {
		promotions = 50
	}
	p := newPair(t)
	db := openStore(t, p.dsn, postgres.Config{PollInterval: 20 * time.Millisecond})
	h, ledgers := openLedgers(t, db.TestJournal(), 2*time.Second), newOperations(8)
	writers := []*sequentialWriter{{id: "raw|1"}, {id: "raw|2"}, {id: "raw|3"}}
	var writing sync.WaitGroup
	stop := make(chan struct{})
	for i, w := range writers {
		writing.Go(func() { w.run(t, db.TestJournal(), rand.New(rand.NewPCG(3, uint64(i))), stop) })
	}
	reader := startReader(t, p.dsn)
	read := 0
	ledgers.run(t, []*ledgerRuntime{h}, 20, time.Second, func(rng *rand.Rand) {
		for i := range promotions {
			p.awaitSync(t)
			pause(t, rng, 300*time.Millisecond)
			lossy := i%3 == 1
			if lossy { // readers may have read events whose wait was canceled, and which are lost
				read += reader.stop(t, p.admin(t))
			}
			if i%3 != 0 {
				p.standby.Stop()
				before := sum(writers, (*sequentialWriter).endedContexts)
				until(t, "contexts that end while the standby is away", func() bool { return sum(writers, (*sequentialWriter).endedContexts) >= before+5 })
			}
			if i%3 == 2 {
				p.standby.Restart(t)
				p.awaitSync(t)
			}
			p.primary.Kill()
			if lossy {
				p.standby.Restart(t)
			}
			p.promote(t)
			checkAcknowledged(t, p.admin(t), writers)
			if lossy {
				reader = startReader(t, p.dsn)
			}
			if t.Failed() {
				t.Logf("after %d promotions", i+1)
				break
			}
		}
		p.awaitSync(t)
	})
	close(stop)
	writing.Wait()
	h.close(t)
	found := openLedgers(t, db.TestJournal(), time.Minute)
	defer found.close(t)
	ledgers.checkResults(t, found)
	checkAcknowledged(t, p.admin(t), writers)
	read += reader.stop(t, p.admin(t))
	acknowledged := sum(writers, func(w *sequentialWriter) int64 { return w.acknowledged.Load() })
	unknown := sum(writers, func(w *sequentialWriter) int64 { return w.unknown.Load() })
	t.Logf("%d promotions: %d events of the plugin were acknowledged, %d appends had an unknown outcome, live readers read %d events", promotions, acknowledged, unknown, read)
}

// pair is a primary with a synchronous standby.
type pair struct {
	primary, standby *pgtest.Server
	dsn              string // of both
	database         string // over a socket
}

func newPair(t *testing.T) *pair {
	t.Helper()
	cfg := pgtest.Config{Settings: map[string]string{"synchronous_standby_names": "walreceiver", "wal_keep_size": "128MB"}}
	p := &pair{primary: pgtest.Start(t, cfg), standby: pgtest.Start(t, cfg)}
	p.standby.Follow(t, p.primary)
	p.database = p.primary.DSN(t)
	u, err := url.Parse(pgtest.Via(t, p.database, p.primary.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Del("host")
	query.Del("port")
	u.Host, u.RawQuery = p.primary.Addr()+","+p.standby.Addr(), query.Encode()
	p.dsn = u.String()
	return p
}

// admin returns a connection to the primary.
func (p *pair) admin(t *testing.T) *pgx.Conn {
	t.Helper()
	return connect(t, pgtest.Via(t, p.database, p.primary.Addr()))
}

// awaitSync returns when commits of the primary wait for the standby.
func (p *pair) awaitSync(t *testing.T) {
	t.Helper()
	admin := p.admin(t)
	defer admin.Close(t.Context()) //nolint:errcheck // the test has ended otherwise
	until(t, "the standby to be synchronous", func() bool {
		return admin.QueryRow(t.Context(), "SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'").Scan() == nil
	})
}

// promote makes the standby the primary, and the old primary its standby.
func (p *pair) promote(t *testing.T) {
	t.Helper()
	p.primary, p.standby = p.standby, p.primary
	admin := p.admin(t)
	defer admin.Close(t.Context()) //nolint:errcheck // the test has ended otherwise
	var promoted bool
	if err := admin.QueryRow(t.Context(), "SELECT pg_promote(true, 300)").Scan(&promoted); err != nil || !promoted {
		t.Fatalf("promote the standby: %v, %v", promoted, err)
	}
	p.standby.Follow(t, p.primary)
}

// sequentialWriter appends events to one ID. After an unknown outcome it appends the same event
// again: a success or a conflict proves that the event is stored.
type sequentialWriter struct {
	id                           string
	acknowledged, unknown, ended atomic.Int64
}

// endedContexts returns the number of appends during which the context ended.
func (w *sequentialWriter) endedContexts() int64 { return w.ended.Load() }

func (w *sequentialWriter) run(t *testing.T, j *postgres.Journal, rng *rand.Rand, stop <-chan struct{}) {
	t.Helper()
	doubtful := false
	for n := uint64(0); ; {
		select {
		case <-stop:
			if !doubtful {
				return
			}
		case <-t.Context().Done():
			return
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.Int64N(int64(400*time.Millisecond))))
		err := errors.Join(j.Append(ctx, []journal.Write{eventsOf(w.id, n, 1)})...)
		if ctx.Err() != nil {
			w.ended.Add(1)
		}
		cancel()
		switch {
		case err == nil || doubtful && errors.Is(err, journal.ErrConflict):
			n, doubtful = n+1, false
			w.acknowledged.Store(int64(n))
		case errors.Is(err, journal.ErrConflict):
			t.Errorf("append of event %d of %s, without an unknown outcome: %v", n+1, w.id, err)
			return
		case !journal.NotStored(err):
			doubtful = true
			w.unknown.Add(1)
		default:
			pause(t, rng, 10*time.Millisecond) // no connection
		}
	}
}

func sum(writers []*sequentialWriter, count func(*sequentialWriter) int64) (all int64) {
	for _, w := range writers {
		all += count(w)
	}
	return all
}

// checkAcknowledged checks that the server has all acknowledged events, and no gaps.
func checkAcknowledged(t *testing.T, admin *pgx.Conn, writers []*sequentialWriter) {
	t.Helper()
	for _, w := range writers {
		want := w.acknowledged.Load() // before reading
		var highest int64
		err := admin.QueryRow(t.Context(), "SELECT coalesce(max(seq_nr), 0) FROM refold.events WHERE id = $1", w.id).Scan(&highest)
		if err != nil || highest < want {
			t.Errorf("%s has %d events, %v, but %d were acknowledged", w.id, highest, err, want)
		}
	}
	var gaps string
	err := admin.QueryRow(t.Context(), "SELECT coalesce(string_agg(id, ', '), '') FROM (SELECT id FROM refold.events GROUP BY id HAVING count(*) <> max(seq_nr) OR min(seq_nr) <> 1) AS g").Scan(&gaps)
	if err != nil || gaps != "" {
		t.Errorf("the numbers of %s have gaps, %v", gaps, err)
	}
}

// failoverReader reads all events while the servers fail over.
type failoverReader struct {
	found   []journal.Envelope
	next    journal.Offset
	end     context.CancelFunc
	running sync.WaitGroup
}

func startReader(t *testing.T, dsn string) *failoverReader {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	r := &failoverReader{end: end}
	j := openStore(t, dsn, postgres.Config{CheckOnly: true, PollInterval: 20 * time.Millisecond}).TestJournal()
	r.running.Go(func() {
		defer j.Close() //nolint:errcheck // nothing depends on it
		rng := rand.New(rand.NewPCG(4, 4))
		for ctx.Err() == nil {
			page, err := j.Query(ctx, journal.Criteria{}, r.next)
			switch {
			case errors.Is(err, postgres.ErrRewound), errors.Is(err, journal.ErrOffset):
				t.Errorf("reader at %q: %v", r.next, err)
				return
			case err != nil:
				pause(t, rng, 10*time.Millisecond) // no primary
				continue
			}
			r.found, r.next = append(r.found, page.Events...), page.Next
			if !page.More {
				_ = j.Await(ctx, r.next) // the next query returns the error
			}
		}
	})
	return r
}

// stop ends the reader, compares its events with those in the table, and returns their number.
func (r *failoverReader) stop(t *testing.T, admin *pgx.Conn) int {
	t.Helper()
	r.end()
	r.running.Wait()
	last, err := postgres.ParseOffset(r.next)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := admin.Query(t.Context(), "SELECT id, seq_nr, ordinal FROM refold.events WHERE ordinal <= $1 AND manifest <> '' ORDER BY ordinal", last)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e journal.Envelope, err error) {
		var ordinal int64
		err = row.Scan(&e.ID, &e.SequenceNr, &ordinal)
		e.Offset = postgres.FormatOffset(ordinal)
		return e, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range r.found {
		if i > 0 && e.Offset.Compare(r.found[i-1].Offset) <= 0 {
			t.Errorf("the reader read %s/%d at %s after %s", e.ID, e.SequenceNr, e.Offset, r.found[i-1].Offset)
		}
		// An event whose append had an unknown outcome may have been read and then lost.
		if len(stored) > 0 && e.ID == stored[0].ID && e.SequenceNr == stored[0].SequenceNr && e.Offset == stored[0].Offset {
			stored = stored[1:]
		}
	}
	if len(stored) > 0 {
		t.Errorf("the reader at %s skipped %s/%d at %s", r.next, stored[0].ID, stored[0].SequenceNr, stored[0].Offset)
	}
	return len(r.found)
}
