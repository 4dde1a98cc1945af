// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// notifyPause is the least time between two notifications of one process.
	// Commits that notify wait for each other in the server.
	notifyPause = 10 * time.Millisecond
	// notifyTimeout bounds one attempt. Readers that miss it poll.
	notifyTimeout = 2 * time.Second
)

// channel is the name under which the appends to a schema are announced.
func channel(schema string) string {
	return fmt.Sprintf("refold_%08x", uint32(lockClass(schema))) //nolint:gosec // the same 32 bits
}

// notifier tells other processes that something was appended: after the
// transactions, from a goroutine of its own, once for all that came together. What goes
// wrong with it is nobody's error, because readers poll as well.
type notifier struct {
	db      *DB
	due     chan struct{}
	begin   func() // starts the goroutine
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newNotifier(db *DB) *notifier {
	ctx, stop := context.WithCancel(context.Background())
	n := &notifier{db: db, due: make(chan struct{}, 1), stop: stop}
	n.begin = sync.OnceFunc(func() { n.running.Go(func() { n.run(ctx) }) })
	return n
}

// close sends what is due and returns when the goroutine is gone.
func (n *notifier) close() {
	n.stop()
	n.begin() // what begins now ends at once, and nothing begins later
	n.running.Wait()
}

// appended wakes the readers of this process and, soon, those of others. It
// does not wait.
func (db *DB) appended() {
	db.tail.wake()
	if db.cfg.DisableNotify {
		return
	}
	db.notifier.begin()
	select {
	case db.notifier.due <- struct{}{}:
	default:
	}
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
	case <-n.due: // a program that appends and ends tells it, too
		n.send(ctx)
	default:
	}
}

// send notifies, even if the journal is being closed.
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
