// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// cancelGrace is how long a call whose context has ended waits for the server to
// say what became of its statement.
const cancelGrace = time.Second

// canceler is what a connection does when the context of a call ends: it asks
// the server to cancel the statement and waits a moment for the answer, which
// tells whether it was in time. Without an answer the outcome is unknown.
//
// The connection is not used any more after that (see DB.use): the request may
// arrive late and would hit the next statement.
type canceler struct {
	conn  *pgconn.PgConn
	grace time.Duration
	stop  context.CancelFunc
	done  chan struct{}
}

// HandleCancel implements ctxwatch.Handler.
func (c *canceler) HandleCancel(context.Context) { //nolint:contextcheck // that one has ended
	deadline := time.Now().Add(c.grace)
	_ = c.conn.Conn().SetDeadline(deadline) // it fails on a closed connection only
	ctx, stop := context.WithDeadline(context.Background(), deadline)
	done := make(chan struct{})
	c.stop, c.done = stop, done
	go func() {
		defer close(done)
		defer stop()
		_ = c.conn.CancelRequest(ctx) // then the deadline ends the call
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *canceler) HandleUnwatchAfterCancel() {
	c.stop()
	<-c.done
	_ = c.conn.Conn().SetDeadline(time.Time{})
}
