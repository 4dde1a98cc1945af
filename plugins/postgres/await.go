// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/journal"
)

// While an append in progress holds readers back, the watermark is looked at
// again after pauses that double from the first to the second of these, but not
// less often than else.
const (
	heldPause    = 5 * time.Millisecond
	maxHeldPause = 100 * time.Millisecond
	lookTimeout  = 10 * time.Second
)

// tail wakes the readers that wait for events. It is one goroutine that
// looks at the watermark, and one that listens for notifications, for all
// readers; both begin with the first of them and end with the journal.
type tail struct {
	db        *DB
	watermark *watermark
	poke      chan struct{} // something was appended, or somebody began to wait
	begin     func()        // starts the goroutines
	stop      context.CancelFunc
	closed    <-chan struct{}
	running   sync.WaitGroup

	mu      sync.Mutex
	waiting int
	turn    *turn // who waits now waits for it
}

// turn is one time that readers are woken.
type turn struct {
	come  chan struct{}
	blind bool // the server could not be asked: whoever reads finds out why
}

func newTail(db *DB) *tail {
	ctx, stop := context.WithCancel(context.Background())
	t := &tail{db: db, watermark: newWatermark(db), poke: make(chan struct{}, 1), stop: stop, closed: ctx.Done(), turn: newTurn()}
	t.begin = sync.OnceFunc(func() {
		t.running.Go(func() { t.look(ctx) })
		if !db.cfg.DisableNotify {
			t.running.Go(func() { t.listen(ctx) })
		}
	})
	return t
}

func newTurn() *turn { return &turn{come: make(chan struct{})} }

// close wakes all who wait and returns when the goroutines are gone.
func (t *tail) close() {
	t.stop()
	t.begin() // what begins now ends at once, and nothing begins later
	t.running.Wait()
}

// Await implements journal.Querier.
func (j *Journal) Await(ctx context.Context, after journal.Offset) error {
	if err := j.await(ctx, after); err != nil {
		return fmt.Errorf("postgres: await: %w", err)
	}
	return nil
}

func (j *Journal) await(ctx context.Context, after journal.Offset) error {
	from, err := parseOffset(after)
	if err != nil {
		return err
	}
	if !j.enter() {
		return journal.ErrClosed
	}
	j.db.tail.begin()
	j.leave()
	return j.db.tail.await(ctx, from)
}

// wake makes the next look come at once, if somebody waits.
func (t *tail) wake() {
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// await returns when something is settled behind a position.
func (t *tail) await(ctx context.Context, from int64) error {
	for first := true; ; first = false {
		t.mu.Lock()
		turn := t.turn // before the look at the watermark, or what comes between them is missed
		if t.watermark.now().settled > from {
			t.mu.Unlock()
			return nil
		}
		t.waiting++
		t.mu.Unlock()
		if first {
			t.wake() // nobody may have looked for long
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

// look is the goroutine that looks at the watermark whenever there is a reason
// to and somebody waits.
func (t *tail) look(ctx context.Context) {
	var told int64 // up to where those who waited were woken
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
			if err != nil || found.settled > told {
				told = found.settled
				t.tell(err != nil)
			}
			switch {
			case err != nil:
				rest = maxHeldPause
			case found.held:
				next = min(next, pause)
				pause = min(2*pause, maxHeldPause)
			}
		}
		if !sleep(ctx, rest) { // what comes meanwhile is looked at together
			return
		}
		timer.Reset(max(next-rest, 0))
	}
}

// refresh is a look at the watermark that does not take for ever.
func (t *tail) refresh(ctx context.Context) (mark, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return t.watermark.refresh(ctx)
}

func (t *tail) awaited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting > 0
}

// tell wakes all who wait.
func (t *tail) tell(blind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn.blind = blind
	close(t.turn.come)
	t.turn = newTurn()
}

// sleep reports whether ctx lasted as long as a pause.
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
	// The pauses between attempts to listen again double from the first to the second.
	listenPause    = 100 * time.Millisecond
	maxListenPause = 10 * time.Second
	// connectTimeout bounds one attempt, and the answer to a sign of life.
	connectTimeout = 10 * time.Second
	// quiet is how long there is no notification before the connection is asked
	// for a sign of life: one that was cut without a word would stay silent for
	// ever.
	quiet = 15 * time.Second
	// leaveTimeout bounds the farewell to the server.
	leaveTimeout = time.Second
)

// listen is the goroutine that waits for notifications. While it has no
// connection, readers find events by polling.
func (t *tail) listen(ctx context.Context) {
	var lost time.Time // zero if that was not reported
	for pause := listenPause; ; pause = min(2*pause, maxListenPause) {
		listened, err := t.session(ctx, lost)
		if listened {
			pause, lost = listenPause, time.Time{}
		}
		if lost.IsZero() && ctx.Err() == nil && t.db.watch.silence(ctx, err) {
			lost = time.Now()
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// session listens on one connection until it is lost, and reports whether it
// did at all. lost is when that was reported of the one before.
func (t *tail) session(ctx context.Context, lost time.Time) (listened bool, err error) {
	conn, err := t.listener(ctx)
	if err != nil {
		return false, err // polling goes on
	}
	defer leave(ctx, conn)
	if !lost.IsZero() {
		t.db.watch.hears(ctx, lost)
	}
	t.wake() // there may have been notifications while nobody listened
	for {
		if err := t.hear(ctx, conn); err != nil {
			return true, err
		}
	}
}

// listener returns a connection that listens.
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

// leave closes a connection for good.
func leave(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	raw := conn.PgConn().Conn()
	_ = conn.Close(ctx)
	_ = raw.Close() // or what the driver still does about a lost connection takes its time
	<-conn.PgConn().CleanupDone()
}

// hear waits for one notification, and if there is none for long for a sign of
// life.
func (t *tail) hear(ctx context.Context, conn *pgx.Conn) error {
	patient, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	_, err := conn.WaitForNotification(patient)
	switch {
	case err == nil:
		t.wake()
		return nil
	case ctx.Err() != nil || patient.Err() == nil:
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
