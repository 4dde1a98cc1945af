// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// minBackoff and maxBackoff are how long a connection that may not listen waits
	// before it tries again.
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// refusalLog is the least time between two lines about missing permissions.
	refusalLog = time.Minute
)

// refusal is what is known about missing permissions. The connection's lock guards
// it.
type refusal struct {
	logged  time.Time
	last    time.Time // that it could not listen
	backoff time.Duration
	waits   bool // to try again
}

// forbidden takes what a server says about missing permissions. Who may not listen is
// as good as disconnected, and tries again, because permissions can be changed while a
// server runs. Who may not speak to somebody is not: that may be meant.
func (n *connection) forbidden(err error) {
	n.c.stats.refused.Add(1)
	n.mu.Lock()
	deaf := n.deafLocked(err) != nil
	now := time.Now()
	log := deaf && !n.refused.waits || now.Sub(n.refused.logged) >= refusalLog
	if log {
		n.refused.logged = now
	}
	if deaf && !n.final {
		n.problem = err
	}
	n.mu.Unlock()
	if log {
		n.c.log.ErrorContext(context.Background(), "NATS permissions are missing", slog.String("connection", n.name), slog.Any("error", err))
	}
	if deaf {
		n.listenAgain(now)
		n.c.tell()
	}
}

// deaf returns an error if it says that the connection may not listen for frames.
func (n *connection) deaf(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deafLocked(err)
}

func (n *connection) deafLocked(err error) error {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	for _, sub := range n.subs {
		if strings.Contains(err.Error(), fmt.Sprintf("Subscription to %q", sub.Subject)) {
			return err
		}
	}
	return nil
}

// listenAgain connects again after a while, which is when the server is asked again.
func (n *connection) listenAgain(now time.Time) {
	n.mu.Lock()
	r := &n.refused
	if r.waits {
		n.mu.Unlock()
		return
	}
	if now.Sub(r.last) > 2*maxBackoff {
		r.backoff = 0 // that is another time
	}
	r.last, r.waits = now, true
	r.backoff = min(max(2*r.backoff, minBackoff), maxBackoff)
	backoff := r.backoff
	n.mu.Unlock()
	n.c.goUnlessClosed(func() {
		timer := time.NewTimer(backoff)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-n.c.done:
			return
		}
		n.mu.Lock()
		n.refused.waits = false
		n.mu.Unlock()
		_ = n.nc.ForceReconnect() // that it is closed is known
	})
}

// goUnlessClosed runs f on a goroutine that Close waits for.
func (c *Carrier) goUnlessClosed(f func()) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !c.closed {
		c.running.Go(f)
	}
}
