// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
)

// replier is a sender that waits for the reply.
type replier interface {
	sender
	hosting.Asker
}

// call is the caller of a command that Ask sends. It is reused after the reply.
type call struct {
	env engine.Envelope
	origin
	done   chan struct{}
	value  any
	err    error
	state  atomic.Uint32
	kept   atomic.Bool   // a Token refers to it, so it must not be reused
	remote *remoteCaller // nil for a caller on this node

	turn atomic.Pointer[entity] // anyIdle during an offer, see send; then the entity that has accepted it
}

// anyIdle is the value of call.turn while the caller offers to take the turn of any idle entity.
var anyIdle = new(entity) //nolint:gochecknoglobals // it has no state

const (
	callWaiting uint32 = iota
	callTaken
	callGone
)

// callPool keeps answered calls for reuse. Each runtime has one, because a channel that was made in a
// bubble of testing/synctest can't be used outside of it.
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

// Take implements engine.Caller.
func (c *call) Take() bool {
	if c.remote != nil {
		c.remote.charge.Free()
		return !c.remote.late()
	}
	if c.ctx.Done() != nil && c.ctx.Err() != nil {
		return false
	}
	return c.state.CompareAndSwap(callWaiting, callTaken)
}

// Untake implements engine.Caller.
func (c *call) Untake() {
	if c.remote != nil {
		c.remote.charge.Hold()
	}
	c.state.CompareAndSwap(callTaken, callWaiting)
}

// Reply implements hosting.Asker.
func (c *call) Reply(value any, err error) {
	if c.remote != nil {
		c.remote.reply(value, err)
		return
	}
	c.value, c.err = value, err
	c.done <- struct{}{}
}

// Context implements hosting.Caller.
func (c *call) Context() context.Context {
	if c.remote != nil {
		return c.remote.context(c.ctx)
	}
	return c.ctx
}

// wait returns the reply. If ctx ends first, the call is not reused.
func (c *call) wait(ctx context.Context) (any, error) {
	select {
	case <-c.done:
		return c.value, c.err
	default:
	}
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
		err := notHandled(ctx)
		c.observed.Load().end(err)
		return nil, err
	}
	select {
	case <-c.done:
		return c.value, c.err
	default:
	}
	return nil, fmt.Errorf("%w: %w while the command was being handled", ErrOutcomeUnknown, ended(ctx))
}

// notHandled returns the error of a command whose context ended before the entity took it.
func notHandled(ctx context.Context) error {
	return fmt.Errorf("eventsourcing: the command was not handled in time, nothing was done: %w", ended(ctx))
}

// ended returns the error of a context that has ended, and its cause if that is another error.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Ref is a reference to an entity, on this node or on another one. It is a value. It stays valid
// while the entity starts, stops and moves.
type Ref[S any] struct {
	id string
	to target
}

// target receives the messages to the Refs of one type.
type target interface {
	// deliver passes on a message. An error means that the message was not passed on and will not be
	// answered.
	deliver(id string, e *engine.Envelope) error
	typeName() string
	calls() *callPool
}

// ID returns the entity's own ID.
func (r Ref[S]) ID() string { return r.id }

func (r Ref[S]) String() string {
	if r.to == nil {
		return "nobody"
	}
	return r.to.typeName() + "|" + r.id
}

// Ask sends a command and waits for the reply, until ctx ends. If ctx has no end, Ask waits without
// a time limit, but at most ten minutes for the reply of another node: then it returns
// ErrOutcomeUnknown. The entity is started if it is not in memory.
//
// If the entity is idle, Ask runs its handler, and may append its events, on the goroutine of the caller.
// Ask then returns when these have ended, also if ctx ends before: see HostOptions.WorkersOnly.
//
// If ctx ends first, the error matches ctx.Err(). If the error also matches ErrOutcomeUnknown, the
// entity may have handled the command. Without this match, the command is not handled. A refusal is
// returned unchanged. See StatusOf for the other errors.
func Ask[S, R any](ctx context.Context, to Ref[S], command Request[S, R]) (R, error) {
	var zero R
	if to.to == nil {
		return zero, fmt.Errorf("%w: ask: the Ref is zero", ErrArgument)
	}
	if any(command) == nil {
		return zero, fmt.Errorf("%w: ask %v: the command is nil", ErrArgument, to)
	}
	value, err := send(ctx, to, command)
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

// send sends a message and waits for the reply, which is a hosting.EncodedReply if it comes from
// another node.
func send[S any](ctx context.Context, to Ref[S], message any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := to.to.calls().get(ctx, message)
	c.turn.Store(anyIdle)
	err := to.to.deliver(to.id, &c.env)
	if !c.turn.CompareAndSwap(anyIdle, nil) {
		c.turn.Swap(nil).takeCallersTurn(c) //nolint:contextcheck // an append ends with the runtime
	}
	if err != nil {
		return nil, err
	}
	value, err := c.wait(ctx)
	to.to.calls().put(c)
	return value, err
}

// turnsInARow is the mean number of turns that a single caller takes before it yields the processor.
const turnsInARow = 256

// letCallersRun yields the processor after a random number of turns, so that callers that never block
// share the processors evenly. With n callers in this function, a caller takes turnsInARow / (n+1) turns
// in a row on average, at least one. Without this rule, a caller that never blocks keeps its processor
// for up to 10 ms, and the scheduler may interrupt it in the middle of a turn.
func (r *Runtime) letCallersRun() {
	if rand.Uint32N(turnsInARow) > r.yielding.Load() {
		return
	}
	r.yielding.Add(1)
	runtime.Gosched()
	r.yielding.Add(^uint32(0))
}

// accepts passes the turn of an entity to the caller of a message and reports whether the caller takes
// it. A message that another goroutine has routed may arrive after the caller has withdrawn its offer.
func (e *entity) accepts(env *engine.Envelope) bool {
	c, ok := env.Caller.(*call)
	return ok && c.turn.Load() == anyIdle && c.turn.CompareAndSwap(anyIdle, e)
}

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

// Tell sends a message and does not wait for the outcome. An error means that the message was not
// passed on. Otherwise the message is handled at most once. It is lost if the runtime ends, a stash is
// full, the entity cannot be recovered, or the network or the entity's node fails. Package delivery sends
// a message until it is confirmed. The values of ctx travel with the message; a later end of ctx has no
// effect.
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
