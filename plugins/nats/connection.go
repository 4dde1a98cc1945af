// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// flushTimeout limits a Flush whose context has no deadline.
const flushTimeout = 3 * time.Second

type connection struct {
	c    *Carrier
	name string
	nc   *nats.Conn

	mu      sync.Mutex
	subs    []*nats.Subscription // for frames
	refused missingPermissions
	problem error // the reason why the connection is unusable, or nil
	final   bool  // the problem is permanent
}

func (n *connection) open(opts []nats.Option) error {
	opts = append(slices.Clip(opts),
		nats.Name("refold "+n.c.cfg.Self.String()+" "+n.name),
		nats.ConnectHandler(func(nc *nats.Conn) { n.connected(nc, false) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { n.connected(nc, true) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.lostConnection(err) }),
		nats.ClosedHandler(func(nc *nats.Conn) { n.closedConnection(nc.LastError()) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.notConnected(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { n.failed(err) }),
	)
	nc, err := nats.Connect(strings.Join(n.c.cfg.URLs, ","), opts...)
	if err != nil {
		return fmt.Errorf("nats: connect: %w", n.c.cfg.explain(err))
	}
	n.nc = nc
	return nil
}

// sync sets the problem of the connection from the client's current state. Its lock delays the
// client's callbacks. Later callbacks update the problem in order.
func (n *connection) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.problem == nil || n.final:
	case n.nc.IsConnected():
		n.problem = cmp.Or(n.unfit(n.nc), n.subscriptionErrorLocked(n.nc.LastError()))
	case errors.Is(n.problem, errConnecting):
		n.problem = because(n.c.cfg.explain(n.nc.LastError()), errConnecting)
	}
}

func (n *connection) unfit(nc *nats.Conn) error {
	if most := nc.MaxPayload(); most < int64(n.c.cfg.MaxFrame) {
		return fmt.Errorf("%w: the server accepts %d bytes, Config.MaxFrame is %d", ErrInvalid, most, n.c.cfg.MaxFrame)
	}
	return nil
}

func (n *connection) connected(nc *nats.Conn, again bool) {
	if again {
		n.c.stats.reconnects.Add(1)
	}
	err := n.unfit(nc)
	if again {
		// The carrier may report a connection only when other nodes can reach this node. The server
		// has processed the subscriptions once it answers.
		err = cmp.Or(err, n.reached(nc), n.subscriptionError(nc.LastError()))
	}
	n.set(err, false)
	if n.subscriptionError(err) != nil {
		return // reported separately
	}
	if err != nil {
		n.c.log.ErrorContext(context.Background(), "nats: server refused", slog.String("connection", n.name), slog.Any("error", err))
	} else {
		n.c.log.InfoContext(context.Background(), "nats: connected", slog.String("connection", n.name), slog.String("server", nc.ConnectedServerName()))
	}
	n.c.report()
}

// reached waits until the server answers. A lost connection ends the wait.
func (n *connection) reached(nc *nats.Conn) error {
	err := nc.FlushTimeout(flushTimeout)
	for errors.Is(err, nats.ErrTimeout) && nc.IsConnected() {
		err = nc.FlushTimeout(flushTimeout)
	}
	return err
}

func (n *connection) lostConnection(err error) {
	err = because(err, errConnecting)
	n.set(err, false)
	n.c.report()
	if !n.c.isClosed() {
		n.c.log.WarnContext(context.Background(), "nats: connection lost", slog.String("connection", n.name), slog.Any("error", err))
	}
}

// notConnected is called for each failed attempt to connect.
func (n *connection) notConnected(err error) {
	err = n.c.cfg.explain(err)
	n.mu.Lock()
	first := n.problem == nil || n.problem.Error() != err.Error()
	n.mu.Unlock()
	n.set(err, false)
	n.c.report()
	if first && !n.c.isClosed() {
		n.c.log.WarnContext(context.Background(), "nats: connect failed", slog.String("connection", n.name), slog.Any("error", err))
	}
}

func (n *connection) closedConnection(err error) {
	n.set(because(err, ErrClosed), true)
	n.c.report()
	if !n.c.isClosed() {
		n.c.log.ErrorContext(context.Background(), "nats: connection closed", slog.String("connection", n.name), slog.Any("error", err))
	}
}

// failed handles errors that do not end a connection.
func (n *connection) failed(err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		n.c.stats.slow.Add(1)
		n.c.log.WarnContext(context.Background(), "nats: slow consumer: frames lost", slog.String("connection", n.name))
	case errors.Is(err, nats.ErrPermissionViolation):
		n.forbidden(err)
	default:
		n.c.log.WarnContext(context.Background(), "nats: server error", slog.String("connection", n.name), slog.Any("error", err))
	}
}

func (n *connection) set(problem error, final bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.final {
		n.problem, n.final = problem, final
	}
}

func (n *connection) trouble() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.problem
}

func (n *connection) flush(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, flushTimeout) // the client requires a deadline
		defer cancel()
	}
	if err := n.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("nats: flush: %w", err)
	}
	return nil
}

func (n *connection) lost() uint64 {
	n.mu.Lock()
	subs := n.subs
	n.mu.Unlock()
	sum := 0
	for _, sub := range subs {
		if dropped, err := sub.Dropped(); err == nil {
			sum += dropped
		}
	}
	return uint64(sum)
}

func (c *Carrier) isClosed() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.closed
}

const (
	// minBackoff and maxBackoff limit the wait before a connection without permission to subscribe
	// tries again.
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// refusalLog is the minimum time between two log records about missing permissions.
	refusalLog = time.Minute
)

// missingPermissions is the state of missing permissions. The connection's lock guards it.
type missingPermissions struct {
	logged  time.Time
	last    time.Time // of the last refused subscription
	backoff time.Duration
	waits   bool // a retry is scheduled
}

// forbidden handles a permission error of the server. A node that may not subscribe counts as
// disconnected and retries, because permissions can change while a server runs. A node that may not
// publish to one subject stays connected, because the restriction may be intended.
func (n *connection) forbidden(err error) {
	n.c.stats.refused.Add(1)
	n.mu.Lock()
	deaf := n.subscriptionErrorLocked(err) != nil
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
		n.c.log.ErrorContext(context.Background(), "nats: permissions missing", slog.String("connection", n.name), slog.Any("error", err))
	}
	if deaf {
		n.resubscribe(now)
		n.c.report()
	}
}

// subscriptionError returns err if it reports that the node may not subscribe to its frames.
// Otherwise it returns nil.
func (n *connection) subscriptionError(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.subscriptionErrorLocked(err)
}

func (n *connection) subscriptionErrorLocked(err error) error {
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

// resubscribe reconnects after the back-off. The server checks the permissions again on the new
// connection.
func (n *connection) resubscribe(now time.Time) {
	n.mu.Lock()
	r := &n.refused
	if r.waits {
		n.mu.Unlock()
		return
	}
	if now.Sub(r.last) > 2*maxBackoff {
		r.backoff = 0 // the previous refusal was long ago
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
		_ = n.nc.ForceReconnect() // the error only reports a closed connection
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
