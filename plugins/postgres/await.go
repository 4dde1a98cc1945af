// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/journal"
)

// While an append in progress holds readers back, the watermark is refreshed after pauses that
// double from heldPause to maxHeldPause, but at least every PollInterval.
const (
	heldPause      = 5 * time.Millisecond
	maxHeldPause   = 100 * time.Millisecond
	refreshTimeout = 10 * time.Second
)

// tail wakes the readers that wait for events. One goroutine refreshes the watermark and another
// one listens for notifications, for all readers. Both start with the first waiting reader and end
// with the journal.
type tail struct {
	db        *DB
	watermark *watermark
	poke      loop.Signal // an append has ended, or a reader began to wait
	begin     func()      // starts the goroutines
	stop      context.CancelFunc
	closed    <-chan struct{}
	running   sync.WaitGroup

	mu      sync.Mutex
	waiting int
	turn    *turn // the wake-up for which the readers wait
}

// turn is one wake-up of the waiting readers.
type turn struct {
	come  chan struct{}
	blind bool // the server did not answer, and the reader's next query returns the error
}

func newTail(db *DB) *tail {
	ctx, stop := context.WithCancel(context.Background())
	t := &tail{db: db, watermark: newWatermark(db), poke: loop.NewSignal(), stop: stop, closed: ctx.Done(), turn: newTurn()}
	t.begin = sync.OnceFunc(func() {
		t.running.Go(func() { t.refreshLoop(ctx) })
		if !db.cfg.DisableNotify {
			t.running.Go(func() { t.listen(ctx) })
		}
	})
	return t
}

func newTurn() *turn { return &turn{come: make(chan struct{})} }

// close wakes all waiting readers and returns when the goroutines have ended.
func (t *tail) close() {
	t.stop()
	t.begin() // goroutines that start now end immediately, and none can start later
	t.running.Wait()
}

// Await implements journal.Querier.
func (j *Journal) Await(ctx context.Context, after journal.Offset) (err error) {
	defer wrap(&err, "await")
	from, err := parseOffset(after)
	if err != nil {
		return err
	}
	if !j.handle.Enter() {
		return journal.ErrClosed
	}
	j.db.tail.begin()
	j.handle.Leave()
	return j.db.tail.await(ctx, from)
}

// await returns when an event after the position is settled.
func (t *tail) await(ctx context.Context, from int64) error {
	for first := true; ; first = false {
		t.mu.Lock()
		turn := t.turn // before reading the watermark, so that no wake-up is missed
		if t.watermark.now().settled > from {
			t.mu.Unlock()
			return nil
		}
		t.waiting++
		t.mu.Unlock()
		if first {
			t.poke.Set() // the watermark may be old
		}
		err := t.wait(ctx, turn)
		t.mu.Lock()
		t.waiting--
		t.mu.Unlock()
		if err != nil || turn.blind {
			return err
		}
	}
}

func (t *tail) wait(ctx context.Context, turn *turn) error {
	select {
	case <-turn.come:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.closed:
		return journal.ErrClosed
	}
}

// refreshLoop refreshes the watermark on each wake-up and poll, while readers wait.
func (t *tail) refreshLoop(ctx context.Context) {
	var woken int64 // the watermark of the last wake-up
	pause := heldPause
	timer := time.NewTimer(t.db.cfg.PollInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.poke:
			pause = heldPause
		case <-timer.C:
		}
		next := t.db.cfg.PollInterval
		rest := heldPause
		if t.awaited() {
			found, err := t.refresh(ctx)
			if err != nil || found.settled > woken {
				woken = found.settled
				t.wakeReaders(err != nil)
			}
			switch {
			case err != nil:
				rest = maxHeldPause
			case found.held:
				next = min(next, pause)
				pause = min(2*pause, maxHeldPause)
			}
		}
		if !sleep(ctx, rest) { // one refresh serves all appends during the pause
			return
		}
		timer.Reset(max(next-rest, 0))
	}
}

// refresh refreshes the watermark within refreshTimeout.
func (t *tail) refresh(ctx context.Context) (mark, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return t.watermark.refresh(ctx)
}

func (t *tail) awaited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting > 0
}

func (t *tail) wakeReaders(blind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn.blind = blind
	close(t.turn.come)
	t.turn = newTurn()
}

// sleep waits for a pause and reports whether ctx is still valid.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	// The pause between attempts to listen again doubles from listenPause to maxListenPause.
	listenPause    = 100 * time.Millisecond
	maxListenPause = 10 * time.Second
	// connectTimeout bounds one attempt to connect, and a ping.
	connectTimeout = 10 * time.Second
	// quiet is the time without a notification after which the connection is checked. Without the
	// check, the loss of a connection would remain undetected.
	quiet = 15 * time.Second
	// leaveTimeout bounds the orderly end of a connection.
	leaveTimeout = time.Second
)

// listen receives notifications. Without a connection, readers find events by polling.
func (t *tail) listen(ctx context.Context) {
	var lost time.Time // when the loss was reported, or zero
	for pause := listenPause; ; pause = min(2*pause, maxListenPause) {
		listened, err := t.session(ctx, lost)
		if listened {
			pause, lost = listenPause, time.Time{}
		}
		if lost.IsZero() && ctx.Err() == nil && t.db.watch.logLost(ctx, err) {
			lost = time.Now()
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// session listens on one connection until it is lost, and reports whether it could listen. lost is
// the time of the reported loss of the previous connection.
func (t *tail) session(ctx context.Context, lost time.Time) (listened bool, err error) {
	conn, err := t.listener(ctx)
	if err != nil {
		return false, err // polling continues
	}
	defer leave(ctx, conn)
	if !lost.IsZero() {
		t.db.watch.log.InfoContext(ctx, "notifications restored", slog.Duration("after", time.Since(lost)))
	}
	t.poke.Set() // notifications may have been missed before LISTEN
	for {
		if err := t.receive(ctx, conn); err != nil {
			return true, err
		}
	}
}

func (t *tail) listener(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	pc, err := parseDSN(cmp.Or(t.db.cfg.NotifyDSN, t.db.dsn))
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, pc.ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel(t.db.cfg.Schema)}.Sanitize()); err != nil {
		leave(ctx, conn)
		return nil, err
	}
	return conn, nil
}

func leave(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	raw := conn.PgConn().Conn()
	_ = conn.Close(ctx)
	_ = raw.Close() // ends the driver's remaining work on a lost connection
	<-conn.PgConn().CleanupDone()
}

// receive waits for one notification. If none arrives within quiet, receive pings the server.
func (t *tail) receive(ctx context.Context, conn *pgx.Conn) error {
	patient, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	_, err := conn.WaitForNotification(patient)
	switch {
	case err == nil:
		t.poke.Set()
		return nil
	case ctx.Err() != nil || patient.Err() == nil:
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

const (
	// notifyPause is the shortest time between two notifications of one process. The pause limits
	// the load, because commits with notifications wait for each other in the server.
	notifyPause = 10 * time.Millisecond
	// notifyTimeout bounds one attempt. Readers that miss a notification poll.
	notifyTimeout = 2 * time.Second
)

// channel returns the name of the notification channel of a schema.
func channel(schema string) string {
	return fmt.Sprintf("refold_%08x", uint32(lockClass(schema))) //nolint:gosec // the same 32 bits
}

// notifier notifies other processes of appends. Its goroutine sends one notification for all
// appends since the last one, after their transactions. Its errors are ignored, because readers
// also poll.
type notifier struct {
	db      *DB
	due     loop.Signal
	begin   func() // starts the goroutine
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newNotifier(db *DB) *notifier {
	ctx, stop := context.WithCancel(context.Background())
	n := &notifier{db: db, due: loop.NewSignal(), stop: stop}
	n.begin = sync.OnceFunc(func() { n.running.Go(func() { n.run(ctx) }) })
	return n
}

// close sends a pending notification and returns when the goroutine has ended.
func (n *notifier) close() {
	n.stop()
	n.begin() // a goroutine that starts now ends immediately, and none can start later
	n.running.Wait()
}

// appended wakes the readers of this process and, soon after, those of other processes. It does not
// block.
func (db *DB) appended() {
	db.tail.poke.Set()
	if db.cfg.DisableNotify {
		return
	}
	db.notifier.begin()
	db.notifier.due.Set()
}

func (n *notifier) run(ctx context.Context) {
	for open := true; open; {
		select {
		case <-n.due:
			n.send(ctx)
		case <-ctx.Done():
		}
		open = sleep(ctx, notifyPause)
	}
	select {
	case <-n.due: // also notify of appends just before Close
		n.send(ctx)
	default:
	}
}

// send sends a notification, even while the journal is being closed.
func (n *notifier) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTimeout)
	defer cancel()
	conn, err := n.db.acquire(ctx)
	if err != nil {
		return
	}
	defer n.db.release(ctx, conn)
	_, _ = conn.Exec(ctx, "SELECT pg_notify($1, '')", channel(n.db.cfg.Schema)) // readers poll as well
}

const (
	// slowCall is the duration from which a statement is reported as slow, including the wait for a
	// connection.
	slowCall = 2 * time.Second
	// longStall is the duration from which blocked readers are reported.
	longStall = 5 * time.Second
	// reportPause is the shortest time between two reports of a stall.
	reportPause = time.Minute
)

// watch logs conditions of the server that no call returns as an error. It holds no connection
// string.
type watch struct {
	log       *slog.Logger
	slowCall  time.Duration
	longStall time.Duration
	throttle  loop.Throttle[string] // by message

	mu    sync.Mutex
	stall stall
}

func (w *watch) logSlow(ctx context.Context, statement string, began time.Time) {
	if took := time.Since(began); took >= w.slowCall {
		const message = "slow statement"
		w.throttle.Log(ctx, w.log, message, slog.LevelWarn, message, slog.String("statement", statement), slog.Duration("took", took))
	}
}

// logStall logs a watermark that has not moved for long, and its next move.
func (w *watch) logStall(ctx context.Context, m mark, class int32) {
	w.mu.Lock()
	age, lasts, over := w.stall.saw(time.Now(), m, w.longStall)
	w.mu.Unlock()
	if lasts {
		w.log.WarnContext(ctx, "an append that does not end blocks all queries", slog.Duration("age", age),
			slog.Int64("behind_ordinal", m.below), slog.Int64("pg_locks_classid", int64(uint32(class)))) //nolint:gosec // the same 32 bits
	}
	if over {
		w.log.InfoContext(ctx, "queries are no longer blocked", slog.Duration("after", age))
	}
}

// logLost logs the loss of notifications with its reason, and returns whether a report was due.
func (w *watch) logLost(ctx context.Context, err error) bool {
	_, due := w.throttle.Allow("lost")
	if due {
		w.log.WarnContext(ctx, "no notifications from the server, polling instead", slog.String("reason", reason(err)))
	}
	return due
}

// stall detects readers that wait for the same append for long.
type stall struct {
	below    int64     // ordinal up to which the order is settled
	since    time.Time // when the watermark stopped there; zero while it moves
	reported bool      // this stall was reported
	next     time.Time // earliest time of the next report
}

// saw adds a mark. age is how long readers are or were blocked. lasts reports that a report about a
// lasting stall is due, and over that a report about its end is due.
func (s *stall) saw(now time.Time, m mark, long time.Duration) (age time.Duration, lasts, over bool) {
	if !s.since.IsZero() {
		age = now.Sub(s.since)
	}
	if !m.held || m.below > s.below || s.since.IsZero() {
		over = s.reported
		s.below, s.since, s.reported = m.below, time.Time{}, false
		if m.held {
			s.since = now
		}
		return age, false, over
	}
	if lasts = age >= long && !now.Before(s.next); lasts {
		s.reported, s.next = true, now.Add(reportPause)
	}
	return age, lasts, false
}
