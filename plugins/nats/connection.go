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

// flushTimeout is how long Flush waits at most if its context has no end.
const flushTimeout = 3 * time.Second

// connection is one of a carrier's connections.
type connection struct {
	c    *Carrier
	name string
	nc   *nats.Conn

	mu      sync.Mutex
	subs    []*nats.Subscription // for frames
	refused refusal
	problem error // why it can't be used, nil if it can
	final   bool  // the problem does not go away
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

// sync makes sure that the first connection is known before the client calls
// back. What the client tells later comes in order.
func (n *connection) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.problem == nil || n.final:
	case n.nc.IsConnected():
		n.problem = cmp.Or(n.unfit(n.nc), n.deafLocked(n.nc.LastError()))
	case errors.Is(n.problem, errConnecting):
		n.problem = because(n.c.cfg.explain(n.nc.LastError()), errConnecting)
	}
}

// unfit returns why a server can't be used.
func (n *connection) unfit(nc *nats.Conn) error {
	if most := nc.MaxPayload(); most < int64(n.c.cfg.MaxFrame) {
		return fmt.Errorf("%w: the server takes %d bytes, Config.MaxFrame is %d", ErrInvalid, most, n.c.cfg.MaxFrame)
	}
	return nil
}

func (n *connection) connected(nc *nats.Conn, again bool) {
	if again {
		n.c.stats.reconnects.Add(1)
	}
	err := n.unfit(nc)
	if again {
		// Who is told that it is connected can be heard: the server knows its
		// subscriptions once it answers.
		err = cmp.Or(err, n.reached(nc), n.deaf(nc.LastError()))
	}
	n.set(err, false)
	if n.deaf(err) != nil {
		return // which is told apart
	}
	if err != nil {
		n.c.log.ErrorContext(context.Background(), "NATS server can't be used", slog.String("connection", n.name), slog.Any("error", err))
	} else {
		n.c.log.InfoContext(context.Background(), "connected to NATS", slog.String("connection", n.name), slog.String("server", nc.ConnectedServerName()))
	}
	n.c.tell()
}

// reached waits until the server answers, however slow it is. A connection that is lost
// meanwhile ends that.
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
	n.c.tell()
	if !n.c.isClosed() {
		n.c.log.WarnContext(context.Background(), "connection to NATS is lost", slog.String("connection", n.name), slog.Any("error", err))
	}
}

// notConnected is called for each attempt that fails.
func (n *connection) notConnected(err error) {
	err = n.c.cfg.explain(err)
	n.mu.Lock()
	first := n.problem == nil || n.problem.Error() != err.Error()
	n.mu.Unlock()
	n.set(err, false)
	n.c.tell()
	if first && !n.c.isClosed() {
		n.c.log.WarnContext(context.Background(), "can't connect to NATS", slog.String("connection", n.name), slog.Any("error", err))
	}
}

func (n *connection) closedConnection(err error) {
	n.set(because(err, ErrClosed), true)
	n.c.tell()
	if !n.c.isClosed() {
		n.c.log.ErrorContext(context.Background(), "connection to NATS was closed for good", slog.String("connection", n.name), slog.Any("error", err))
	}
}

// failed takes errors that do not end a connection.
func (n *connection) failed(err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		n.c.stats.slow.Add(1)
		n.c.log.WarnContext(context.Background(), "frames come in faster than they are taken, some are lost", slog.String("connection", n.name))
	case errors.Is(err, nats.ErrPermissionViolation):
		n.forbidden(err)
	default:
		n.c.log.WarnContext(context.Background(), "NATS reports an error", slog.String("connection", n.name), slog.Any("error", err))
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
		ctx, cancel = context.WithTimeout(ctx, flushTimeout) // the client wants one
		defer cancel()
	}
	if err := n.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("nats: flush: %w", err)
	}
	return nil
}

func (n *connection) add(sub *nats.Subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs = append(n.subs, sub)
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
