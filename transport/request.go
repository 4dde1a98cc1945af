// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/loop"
)

// Request sends a request on the lane Data and waits for the reply or the end of ctx. In addition
// to the errors of Send it returns ErrNoHandler, ErrHandlerFailed, ErrForgotten and ctx's cause.
// After an error of Send the request was not sent; after another error it may have been handled.
func (t *Transport) Request(ctx context.Context, to identity.Node, kind Kind, payload []byte) ([]byte, error) {
	if to.UID == 0 {
		return nil, fmt.Errorf("%w: request to %q needs a UID", ErrInvalid, to.Name)
	}
	r := t.unused.Get().(chan result) //nolint:errcheck // the pool holds nothing else
	id, err := t.requests.Add(request{to, r})
	switch {
	case errors.Is(err, loop.ErrClosed):
		return nil, ErrClosed
	case err != nil:
		return nil, fmt.Errorf("%w: %d open requests", ErrBackpressure, t.cfg.MaxRequests)
	}
	err = t.send(to, Data, link.Message{Type: link.Request, Kind: link.Kind(kind), Correlation: id, Payload: payload})
	if err != nil {
		t.abandon(id, r)
		return nil, err
	}
	select {
	case a := <-r:
		t.unused.Put(r)
		return t.payload(to, a)
	case <-ctx.Done():
		t.abandon(id, r)
		return nil, fmt.Errorf("transport: request to %v: %w", to, context.Cause(ctx))
	}
}

func (t *Transport) payload(to identity.Node, a result) ([]byte, error) {
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

type request struct {
	to identity.Node
	// result is a buffered channel for one result. Channels are reused.
	result chan result
}

// result is the outcome of a request: a reply or an error.
type result struct {
	reply link.Message
	err   error
}

// abandon ends a request without a result.
func (t *Transport) abandon(id uint64, r chan result) {
	t.requests.Remove(id)
	select { // a result may have been sent before
	case <-r:
	default:
	}
	t.unused.Put(r)
}

// completeRequest passes a reply to its request, if the request was sent to the replying node.
func (t *Transport) completeRequest(from identity.Node, reply link.Message) {
	completed := t.requests.Answer(reply.Correlation, func(r request) bool {
		if r.to != from {
			return false
		}
		r.result <- result{reply: reply}
		return true
	})
	if !completed {
		t.counters.dropped[link.LateReply].Add(1)
	}
}

// failRequests ends all requests to an incarnation, or all requests if it is the zero node.
func (t *Transport) failRequests(to identity.Node, err error) {
	t.requests.AnswerAll(func(r request) bool {
		fails := to.IsZero() || r.to == to
		if fails {
			r.result <- result{err: err}
		}
		return fails
	})
}
