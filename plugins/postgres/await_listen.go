// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

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
