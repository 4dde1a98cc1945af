// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
)

// replier is a sender that waits for the answer.
type replier interface {
	sender
	hosting.Asker
}

// call is an Ask on its way. It is reused once it was answered.
type call struct {
	env engine.Envelope
	origin
	done  chan struct{}
	value any
	err   error
	state atomic.Uint32
	kept  atomic.Bool // a Token points here, so it must not be reused
	away  *away       // of a caller on another node, else nil
}

const (
	callWaiting uint32 = iota
	callTaken
	callGone
)

// callPool keeps answered calls for reuse. Each runtime has its own: a channel that was made in a
// testing/synctest bubble can't be used outside of it.
type callPool struct {
	pool    sync.Pool
	replies replyCodec // for replies from other nodes
}

func (p *callPool) get(ctx context.Context, command any) *call {
	c, ok := p.pool.Get().(*call)
	if !ok {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.ctx = ctx
	c.env.Message = command
	c.env.Caller = c
	c.state.Store(callWaiting)
	return c
}

func (p *callPool) put(c *call) {
	if c.kept.Load() {
		return
	}
	c.origin, c.value, c.err, c.env = origin{}, nil, nil, engine.Envelope{}
	p.pool.Put(c)
}

// Take is part of engine.Caller.
func (c *call) Take() bool {
	if c.away != nil {
		return !c.away.late()
	}
	if c.ctx.Done() != nil && c.ctx.Err() != nil {
		return false
	}
	return c.state.CompareAndSwap(callWaiting, callTaken)
}

// Untake is part of engine.Caller.
func (c *call) Untake() { c.state.CompareAndSwap(callTaken, callWaiting) }

// Reply implements hosting.Asker.
func (c *call) Reply(value any, err error) {
	if c.away != nil {
		c.away.reply(value, err)
		return
	}
	c.value, c.err = value, err
	c.done <- struct{}{}
}

// Context implements hosting.Caller.
func (c *call) Context() context.Context {
	if c.away != nil {
		return c.away.context(c.ctx)
	}
	return c.ctx
}

// wait returns the answer. After an error of the context the call must not be reused.
func (c *call) wait(ctx context.Context) (any, error) {
	done := ctx.Done()
	if done == nil {
		<-c.done
		return c.value, c.err
	}
	select {
	case <-c.done:
		return c.value, c.err
	case <-done:
	}
	c.kept.Store(true)
	if c.state.Swap(callGone) == callWaiting {
		err := fmt.Errorf("eventsourcing: the command was not handled in time, nothing was done: %w", ended(ctx))
		c.observed.end(err)
		return nil, err
	}
	select {
	case <-c.done:
		return c.value, c.err
	default:
	}
	return nil, &unknownError{ended(ctx)}
}

// ended returns the error of a context that has ended, with its cause if that is another one.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// unknownError says that a caller left while its command was being handled.
type unknownError struct{ cause error }

func (e *unknownError) Error() string {
	return fmt.Sprintf("%v: %v while the command was being handled", ErrOutcomeUnknown, e.cause)
}

// Is reports whether target is ErrOutcomeUnknown.
func (e *unknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

func (e *unknownError) Unwrap() error { return e.cause }

// Ref addresses an entity, on this node or on another. It is a value; it stays valid while the
// entity starts, stops and moves.
type Ref[S any] struct {
	id string
	to target
}

// target is where the commands of a Ref go.
type target interface {
	// deliver hands over an envelope, or says why it can't.
	deliver(id string, e *engine.Envelope) error
	typeName() string
	calls() *callPool
}

// ID is the entity's own ID.
func (r Ref[S]) ID() string { return r.id }

func (r Ref[S]) String() string {
	if r.to == nil {
		return "nobody"
	}
	return r.to.typeName() + "|" + r.id
}

// Ask sends a command and waits for the answer, until ctx ends. The entity is started if it is not
// there.
//
// When ctx ends first the error matches ctx.Err(), and says whether the command surely was not done
// or may be: then it matches ErrOutcomeUnknown. Without an end of ctx, Ask waits as long as it
// takes. An aggregate's refusal is returned as it is; see Code for the other errors.
func Ask[S, R any](ctx context.Context, to Ref[S], command Request[S, R]) (R, error) {
	var zero R
	if to.to == nil {
		return zero, fmt.Errorf("%w: ask: the Ref is zero", ErrArgument)
	}
	if any(command) == nil {
		return zero, fmt.Errorf("%w: ask %v: the command is nil", ErrArgument, to)
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	c := to.to.calls().get(ctx, command)
	if err := to.to.deliver(to.id, &c.env); err != nil {
		return zero, err
	}
	value, err := c.wait(ctx)
	to.to.calls().put(c)
	if err != nil {
		return zero, err
	}
	if data, encoded := value.(hosting.EncodedReply); encoded {
		return decodeReply[R](to, data)
	}
	reply, ok := value.(R)
	if !ok && value != nil {
		return zero, fmt.Errorf("%w: %v answered %T to %T", ErrWrongReply, to, value, command)
	}
	return reply, nil
}

// decodeReply returns an answer from another node.
func decodeReply[R, S any](to Ref[S], data hosting.EncodedReply) (R, error) {
	var result, zero R
	if err := to.to.calls().replies.decode(data, &result); err != nil {
		if errors.Is(err, ErrWrongReply) {
			err = fmt.Errorf("%v answered: %w", to, err)
		}
		return zero, err
	}
	return result, nil
}

// Tell sends a command and does not wait. An error says that it was not handed over; what becomes
// of it otherwise is not told. Only the end of the runtime and a full stash keep a command that was
// handed over from being handled. The values of ctx go with the command; when ctx ends later,
// nothing follows.
func Tell[S any](ctx context.Context, to Ref[S], message Message[S]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if to.to == nil {
		return fmt.Errorf("%w: tell: the Ref is zero", ErrArgument)
	}
	if any(message) == nil {
		return fmt.Errorf("%w: tell %v: the message is nil", ErrArgument, to)
	}
	return to.to.deliver(to.id, envelope(ctx, message))
}
