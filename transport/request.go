// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"sync"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Request sends a request on the lane Data and waits for the answer or the end of
// ctx. Besides the errors of Send there are ErrNoHandler and ErrHandlerFailed.
// After an error the request may have been handled, unless the error is one of
// Send.
func (t *Transport) Request(ctx context.Context, to identity.Node, kind Kind, payload []byte) ([]byte, error) {
	if to.UID == 0 {
		return nil, fmt.Errorf("%w: request to %q without a UID", ErrInvalid, to.Name)
	}
	id, answer, err := t.calls.begin(to)
	if err != nil {
		return nil, err
	}
	err = t.send(to, Data, link.Message{Type: link.Request, Kind: kind, Correlation: id, Payload: payload})
	if err != nil {
		t.calls.end(id, answer)
		return nil, err
	}
	select {
	case a := <-answer:
		t.calls.free(answer)
		return t.result(to, a)
	case <-ctx.Done():
		t.calls.end(id, answer)
		return nil, fmt.Errorf("transport: request to %v: %w", to, context.Cause(ctx))
	}
}

func (t *Transport) result(to identity.Node, a answer) ([]byte, error) {
	switch {
	case a.err != nil:
		return nil, fmt.Errorf("transport: request to %v: %w", to, a.err)
	case a.reply.Kind == statusNoHandler:
		return nil, fmt.Errorf("%w: %v", ErrNoHandler, to)
	case a.reply.Kind != statusOK:
		return nil, fmt.Errorf("%w: %v", ErrHandlerFailed, to)
	case !a.reply.Compressed:
		return a.reply.Payload, nil
	}
	payload, err := decompress(a.reply.Payload, t.cfg.MaxMessage)
	if err != nil {
		t.loose.dropped[link.Undecompressed].Add(1)
		return nil, err
	}
	return payload, nil
}

// answer is what a request ends with.
type answer struct {
	reply link.Message
	err   error
}

// calls are the requests that are open.
type calls struct {
	limit int

	mu     sync.Mutex
	last   uint64
	open   map[uint64]call
	closed bool

	unused sync.Pool // of chan answer
}

type call struct {
	to     identity.Node
	answer chan answer
}

// begin numbers a request. What it returns goes to end, or after an answer to
// free.
func (c *calls) begin(to identity.Node) (uint64, chan answer, error) {
	ch, ok := c.unused.Get().(chan answer)
	if !ok {
		ch = make(chan answer, 1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, nil, ErrClosed
	case len(c.open) >= c.limit:
		return 0, nil, fmt.Errorf("%w: %d requests are open", ErrBackpressure, c.limit)
	case c.open == nil:
		c.open = make(map[uint64]call)
	}
	c.last++
	c.open[c.last] = call{to: to, answer: ch}
	return c.last, ch, nil
}

// end gives a request up.
func (c *calls) end(id uint64, ch chan answer) {
	c.mu.Lock()
	delete(c.open, id)
	c.mu.Unlock()
	select { // nothing is sent any more, but something may have been
	case <-ch:
	default:
	}
	c.free(ch)
}

func (c *calls) free(ch chan answer) { c.unused.Put(ch) }

// complete answers a request, if it is open and was sent to the one who answers.
func (c *calls) complete(from identity.Node, reply link.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, ok := c.open[reply.Correlation]
	if !ok || asked.to != from {
		return false
	}
	delete(c.open, reply.Correlation)
	asked.answer <- answer{reply: reply} // has room for one, and gets one
	return true
}

// failPeer ends all requests to an incarnation.
func (c *calls) failPeer(to identity.Node, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, asked := range c.open {
		if asked.to == to {
			delete(c.open, id)
			asked.answer <- answer{err: err}
		}
	}
}

// close ends all requests.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, asked := range c.open {
		delete(c.open, id)
		asked.answer <- answer{err: ErrClosed}
	}
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
