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

// Request sends a request on the lane Data and waits for the reply or the end of ctx. In addition
// to the errors of Send it returns ErrNoHandler, ErrHandlerFailed, ErrForgotten and ctx's cause.
// After an error of Send the request was not sent; after another error it may have been handled.
func (t *Transport) Request(ctx context.Context, to identity.Node, kind Kind, payload []byte) ([]byte, error) {
	if to.UID == 0 {
		return nil, fmt.Errorf("%w: request to %q needs a UID", ErrInvalid, to.Name)
	}
	id, answer, err := t.requests.begin(to)
	if err != nil {
		return nil, err
	}
	err = t.send(to, Data, link.Message{Type: link.Request, Kind: link.Kind(kind), Correlation: id, Payload: payload})
	if err != nil {
		t.requests.end(id, answer)
		return nil, err
	}
	select {
	case a := <-answer:
		t.requests.free(answer)
		return t.result(to, a)
	case <-ctx.Done():
		t.requests.end(id, answer)
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
		t.counters.dropped[link.Undecompressed].Add(1)
		return nil, err
	}
	return payload, nil
}

// answer is the result of a request.
type answer struct {
	reply link.Message
	err   error
}

// requests are the open requests.
type requests struct {
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

// begin registers a request. Its results are arguments of end, or after an answer of free.
func (c *requests) begin(to identity.Node) (uint64, chan answer, error) {
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
		return 0, nil, fmt.Errorf("%w: %d open requests", ErrBackpressure, c.limit)
	case c.open == nil:
		c.open = make(map[uint64]call)
	}
	c.last++
	c.open[c.last] = call{to: to, answer: ch}
	return c.last, ch, nil
}

// end abandons a request.
func (c *requests) end(id uint64, ch chan answer) {
	c.mu.Lock()
	delete(c.open, id)
	c.mu.Unlock()
	select { // an answer may have been sent before the delete
	case <-ch:
	default:
	}
	c.free(ch)
}

func (c *requests) free(ch chan answer) { c.unused.Put(ch) }

// complete passes a reply to its request, if the request is open and was sent to the replying node.
func (c *requests) complete(from identity.Node, reply link.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	req, ok := c.open[reply.Correlation]
	if !ok || req.to != from {
		return false
	}
	delete(c.open, reply.Correlation)
	req.answer <- answer{reply: reply} // does not block: the channel has room for its only answer
	return true
}

// failPeer ends all requests to an incarnation.
func (c *requests) failPeer(to identity.Node, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, req := range c.open {
		if req.to == to {
			delete(c.open, id)
			req.answer <- answer{err: err}
		}
	}
}

// close ends all requests.
func (c *requests) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, req := range c.open {
		delete(c.open, id)
		req.answer <- answer{err: ErrClosed}
	}
}

func (c *requests) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
