// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/loop"
)

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
