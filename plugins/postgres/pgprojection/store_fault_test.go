// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

// wire counts the messages to the server and cuts the connection at one of them. The cut is before
// the message is sent, or after it, so that only the response is lost.
type wire struct {
	cut       int64 // which message, from 1
	afterSend bool
	sent      atomic.Int64
	done      atomic.Bool
}

type wireConn struct {
	net.Conn
	w   *wire
	cut atomic.Bool
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, w: w}, nil
}

func (c *wireConn) Write(b []byte) (int, error) {
	if c.w.sent.Add(1) != c.w.cut {
		return c.Conn.Write(b)
	}
	c.w.done.Store(true)
	if c.w.afterSend {
		c.cut.Store(true)
		return c.Conn.Write(b)
	}
	_ = c.Close()
	return 0, net.ErrClosed
}

// Read waits for the response, so that the server has executed the request, and discards it.
func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.cut.Load() {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// The connection is cut before and after each message. The process continues, or it ends and
// another process takes over. The final read model corresponds to the events.
func TestExactlyOnceThroughCutConnections(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	plain := connect(t, dsn, nil)
	j := newJournal(t)
	want := fill(t, j, 5, 40)
	for _, afterSend := range []bool{false, true} {
		for _, ends := range []bool{false, true} {
			for cut := int64(1); ; cut++ {
				exec(t, plain, "TRUNCATE sums, refold.projections")
				w := &wire{cut: cut, afterSend: afterSend}
				pool := connect(t, dsn, func(c *pgxpool.Config) {
					c.ConnConfig.DialFunc = w.dial
					c.MaxConns = 1
				})
				cfg := config(j, handler(pool, 15))
				if ends {
					cfg.MaxRestarts = -1
				}
				err := create(t, cfg).CatchUp(t.Context())
				if ends && err != nil {
					err = create(t, config(j, handler(plain, 15))).CatchUp(t.Context())
				}
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				wantSums(t, plain, want)
				pool.Close()
				if !w.done.Load() {
					break
				}
			}
		}
	}
}

// An administrator terminates sessions repeatedly, while workers of two processes handle events. No
// event is skipped, although the strategy permits it.
func TestExactlyOnceThroughTerminatedSessions(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	plain := connect(t, dsn, nil)
	j := newJournal(t)
	want := fill(t, j, 50, 3000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make(chan error, 2)
	var projections []*projection.Projection[paid]
	for range 2 {
		cfg := config(j, handler(connect(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "victim" }), 20))
		cfg.Workers, cfg.OnFailure = 4, projection.Strategy{Skip: true}
		p := create(t, cfg)
		projections = append(projections, p)
		go func() { results <- p.Run(ctx) }()
	}
	handled := func() (events int64) {
		if err := plain.QueryRow(t.Context(), "SELECT coalesce(sum(events), 0) FROM sums").Scan(&events); err != nil {
			t.Fatal(err)
		}
		return events
	}
	for kills := 0; handled() < 3000; kills++ {
		if kills < 40 {
			exec(t, plain, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()")
		}
	}
	cancel()
	for range projections {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want the cause of its context", err)
		}
	}
	wantSums(t, plain, want)
	for _, p := range projections {
		if got := p.Status(); got.Skipped != 0 {
			t.Errorf("%d events were skipped, want 0", got.Skipped)
		}
	}
}

// The server is killed and restarted while events are handled.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	prepare(t, dsn)
	j := newJournal(t)
	want := fill(t, j, 10, 60)
	pool := connect(t, dsn, nil)
	h := handler(pool, 1) // a failure is about one event
	calls := 0
	h.Handle = func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[paid]) error {
		kill := func() { //nolint:contextcheck // the server belongs to the test
			server.Kill()
			server.Restart(t)
		}
		if calls++; calls == 5 {
			kill()
		}
		err := addUp(ctx, tx, events)
		if calls == 20 {
			kill()
		}
		return err
	}
	cfg := config(j, h)
	cfg.OnFailure = projection.Strategy{Skip: true}
	p := create(t, cfg)
	if err := p.CatchUp(t.Context()); err != nil {
		t.Error(err)
	}
	wantSums(t, pool, want)
	if got := p.Status(); got.Skipped != 0 || got.Restarts == 0 {
		t.Errorf("%d skipped and %d restarts, want 0 skipped and at least 1 restart", got.Skipped, got.Restarts)
	}
}

// An event whose statement fails is isolated in its batch. The failure is returned by the
// statement, ignored by the handler, or returned by the commit.
func TestPoison(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	for name, poison := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"immediately": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		},
		"hidden": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		},
		"at the commit": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO checked VALUES (1), (1)")
			return err
		},
		"canceled": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)")
			return err
		},
	} {
		pool := connect(t, dsn, nil)
		exec(t, pool, "TRUNCATE sums, refold.projections")
		j := newJournal(t)
		want := fill(t, j, 1, 50)
		want["box|0"] -= 33
		h := handler(pool, 50)
		h.Handle = func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[paid]) error {
			if err := addUp(ctx, tx, events); err != nil {
				return err
			}
			for _, e := range events {
				if e.SequenceNr == 33 {
					return poison(ctx, tx)
				}
			}
			return nil
		}
		var skipped []*projection.EventError
		cfg := config(j, h)
		cfg.OnFailure = projection.Strategy{Skip: true}
		cfg.Observer.Skipped = func(e *projection.EventError) { skipped = append(skipped, e) }
		if err := create(t, cfg).CatchUp(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantSums(t, pool, want)
		if len(skipped) != 1 || skipped[0].SequenceNr != 33 {
			t.Errorf("%s: skipped %v, want event 33", name, skipped)
		}
	}
}

// Deadlocks are not attributed to an event.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool := connect(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["deadlock_timeout"] = "10ms" })
	exec(t, pool, "INSERT INTO sums VALUES ('a', 0, 0), ('b', 0, 0)")
	store := newStore(pool)
	results := make(chan error, 2)
	locked := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	var calls [2]int
	for i, order := range [2][2]string{{"a", "b"}, {"b", "a"}} {
		go func() {
			m := projection.Move{Projection: order[0], To: []projection.Position{{Slices: journal.Slices{Count: 1024}}}}
			results <- store.Apply(t.Context(), m, func(ctx context.Context, tx pgx.Tx) error {
				calls[i]++
				if _, err := tx.Exec(ctx, "UPDATE sums SET n = n + 1 WHERE box = $1", order[0]); err != nil {
					return err
				}
				if calls[i] == 1 {
					close(locked[i])
					<-locked[1-i]
				}
				_, err := tx.Exec(ctx, "UPDATE sums SET n = n + 1 WHERE box = $1", order[1])
				return err
			})
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("Apply: %v, want nil after a retry", err)
		}
	}
	wantSums(t, pool, map[string]int64{"a": 2, "b": 2})
	if calls[0]+calls[1] < 3 { // a retry may deadlock again
		t.Errorf("%v calls, want at least 3 because of the deadlock", calls)
	}
}

// A deadlock that is followed by a failure to connect is not attributed to an event. No event is
// therefore skipped.
func TestOutageAfterADeadlock(t *testing.T) {
	t.Parallel()
	var outage atomic.Bool
	pool := connect(t, database(t), func(c *pgxpool.Config) {
		c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			if outage.CompareAndSwap(true, false) {
				return true, errors.New("no connection")
			}
			return true, nil
		}
	})
	j := newJournal(t)
	want := fill(t, j, 1, 1)
	h := handler(pool, 1)
	calls := 0
	h.Handle = func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[paid]) error {
		if calls++; calls == 1 {
			outage.Store(true)
			return &pgconn.PgError{Severity: "ERROR", Code: "40P01", Message: "deadlock detected"}
		}
		return addUp(ctx, tx, events)
	}
	cfg := config(j, h)
	cfg.OnFailure = projection.Strategy{Skip: true}
	p := create(t, cfg)
	if err := p.CatchUp(t.Context()); err != nil {
		t.Error(err)
	}
	wantSums(t, pool, want)
	if got := p.Status(); got.Skipped != 0 || got.Restarts == 0 {
		t.Errorf("%d skipped and %d restarts, want 0 skipped and at least 1 restart", got.Skipped, got.Restarts)
	}
}

// A second process that handles the same events waits and is fenced before it calls its handler.
func TestFencedBeforeWork(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool := connect(t, dsn, nil)
	store := newStore(pool)
	first := []projection.Position{{Slices: journal.Slices{Count: 1024}}}
	second := []projection.Position{{Slices: journal.Slices{Count: 1024}, Offset: "1"}}
	if err := store.Save(t.Context(), projection.Move{Projection: "p", To: first}); err != nil {
		t.Fatal(err)
	}
	move := projection.Move{Projection: "p", From: first, To: second}
	result := make(chan error, 1)
	err := store.Apply(t.Context(), move, func(ctx context.Context, _ pgx.Tx) error {
		go func() { //nolint:contextcheck // another process
			result <- store.Apply(t.Context(), move, func(context.Context, pgx.Tx) error {
				t.Error("the fenced Apply called its handler, want no call")
				return nil
			})
		}()
		for waiting := false; !waiting; { // until the other Apply waits
			if err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-result; !errors.Is(err, projection.ErrFenced) {
		t.Errorf("the second Apply: %v, want ErrFenced", err)
	}
}

func TestMissingTable(t *testing.T) {
	t.Parallel()
	pool := connect(t, pgtest.DSN(t), nil)
	store, err := pgprojection.NewStore(pool, pgprojection.Config{Schema: "odd-name"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err = store.Load(ctx, "p"); !errors.Is(err, projection.ErrNotSetUp) || !strings.Contains(err.Error(), "apply the migrations") {
		t.Errorf("Load: %v, want an error that names the remedy", err)
	}
	h := handler(pool, 0)
	h.Store = store
	if err := create(t, config(newJournal(t), h)).Run(ctx); !errors.Is(err, projection.ErrNotSetUp) {
		t.Errorf("Run: %v, want ErrNotSetUp", err)
	}
}

// A reset that waits for a division of a range resets the new ranges.
func TestResetBesideDivision(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			pool := connect(t, database(t), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation })
			store := newStore(pool)
			whole := []projection.Position{{Slices: journal.Slices{Count: 1024}, Offset: "1"}}
			halves := []projection.Position{{Slices: journal.Slices{Count: 512}, Offset: "1"}, {Slices: journal.Slices{First: 512, Count: 512}, Offset: "1"}}
			if err := store.Save(t.Context(), projection.Move{Projection: "p", To: whole}); err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			err := store.Apply(t.Context(), projection.Move{Projection: "p", From: whole, To: halves}, func(ctx context.Context, _ pgx.Tx) error {
				go func() { result <- store.Reset(t.Context(), "p") }() //nolint:contextcheck // another process
				for waiting := false; !waiting; {                       // until the reset waits
					if err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting); err != nil {
						return err
					}
				}
				return nil
			})
			if err = errors.Join(err, <-result); err != nil {
				t.Error(err)
			}
			positions, err := store.Load(t.Context(), "p")
			if err != nil || len(positions) != 2 {
				t.Fatalf("positions %v, error %v, want 2", positions, err)
			}
			for _, p := range positions {
				if !p.Clear || p.Offset != "" {
					t.Errorf("position %+v after the reset, want the beginning with Clear", p)
				}
			}
		})
	}
}
