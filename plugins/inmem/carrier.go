// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/transport"
)

// Carrier is a node's connection to a Network. It implements transport.Carrier.
type Carrier struct {
	network *Network
	self    identity.Node
	lanes   [transport.Lanes]laneQueue
	done    chan struct{}

	mu       sync.Mutex
	receiver transport.Receiver
	take     func(transport.AdminRequest) // nil if it accepts no operator requests
	takesAny bool                         // take accepts requests to any node
	closed   bool
	running  sync.WaitGroup
}

var (
	_ transport.Carrier      = (*Carrier)(nil)
	_ transport.AdminCarrier = (*Carrier)(nil)
)

// laneQueue holds the frames for a node on one lane, ordered by due time.
type laneQueue struct {
	news  loop.Signal
	mu    sync.Mutex
	queue []parcel
}

// Self implements transport.Carrier.
func (c *Carrier) Self() identity.Node { return c.self }

// MaxFrame implements transport.Carrier.
func (c *Carrier) MaxFrame() int { return c.network.cfg.MaxFrame }

// Start implements transport.Carrier.
func (c *Carrier) Start(r transport.Receiver) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errCarrierClosed
	}
	if err := c.network.join(c); err != nil {
		return err
	}
	c.receiver = r
	for lane := range c.lanes {
		c.running.Go(func() { c.deliver(transport.Lane(lane), r) }) //nolint:gosec // a lane
	}
	return nil
}

// Send implements transport.Carrier.
func (c *Carrier) Send(lane transport.Lane, to identity.Node, frame []byte) error {
	select {
	case <-c.done:
		return errCarrierClosed
	default:
		return c.network.send(c.self, to, lane, frame)
	}
}

// Close implements transport.Carrier.
func (c *Carrier) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		c.network.leave(c)
		close(c.done)
	}
	c.running.Wait()
	return nil
}

// connection reports changes of the connection to the receiver, one at a time.
func (c *Carrier) connection(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.receiver != nil {
		c.receiver.Connection(err)
	}
}

func (c *Carrier) put(p parcel) bool {
	q := &c.lanes[p.lane]
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) >= c.network.cfg.Queue {
		return false
	}
	i := len(q.queue)
	for i > 0 && q.queue[i-1].due.After(p.due) {
		i--
	}
	q.queue = slices.Insert(q.queue, i, p)
	q.news.Set()
	return true
}

// deliver passes frames to the receiver when they are due.
func (c *Carrier) deliver(lane transport.Lane, r transport.Receiver) {
	q := &c.lanes[lane]
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, p := range q.due(time.Now(), c.network.isPaused(c.self.Name)) {
			r.Receive(lane, p.from, p.frame)
		}
		var later <-chan time.Time
		if due, ok := q.next(); ok && !c.network.isPaused(c.self.Name) {
			timer.Reset(max(0, time.Until(due)))
			later = timer.C
		}
		select {
		case <-c.done:
			return
		case <-q.news:
		case <-later:
		}
	}
}

func (q *laneQueue) due(now time.Time, paused bool) []parcel {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for !paused && n < len(q.queue) && !q.queue[n].due.After(now) {
		n++
	}
	if n == len(q.queue) {
		all := q.queue
		q.queue = nil
		return all
	}
	some := slices.Clone(q.queue[:n])
	q.queue = slices.Delete(q.queue, 0, n)
	return some
}

func (q *laneQueue) next() (time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return time.Time{}, false
	}
	return q.queue[0].due, true
}
