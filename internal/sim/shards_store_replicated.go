// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	statereg "github.com/refold-io/refold/internal/shardcore/register"
)

// replicatedKeys are the two keys of replicated data with the state of coordinators, as a node
// accesses them.
type replicatedKeys struct{ s *shardNode }

// Self implements register.Data.
func (k replicatedKeys) Self() *crdt.Self { return k.s.h.data.self }

func read[T any](e *storeCall, key string, level replication.Level, repair bool) (v T, err error) {
	err = e.try(key, level, func(in replication.Request) replication.Input {
		return replication.Get{Request: in, RepairPeers: repair}
	})
	if err == nil && e.reply.Outcome == replication.Done {
		v = as[T](e.reply.Value)
	}
	return v, err
}

func modify[T any](e *storeCall, key string, f func(T) (T, error)) error {
	var refused error
	err := e.try(key, replication.Level{Kind: replication.Majority}, func(in replication.Request) replication.Input {
		return replication.Update{Request: in, Modify: func(v crdt.Value) (crdt.Value, error) {
			t, err := f(as[T](v))
			if refused = err; err != nil {
				return v, err
			}
			e.s.h.data.wrote = true
			return (*crdt.Types)(nil).Value(t)
		}}
	})
	if refused != nil {
		return refused
	}
	return err
}

// ReadClaims implements register.Data.
func (k replicatedKeys) ReadClaims(ctx context.Context) (crdt.ORSet[string], error) {
	return read[crdt.ORSet[string]](storeCallOf(ctx), claimsKey, replication.Level{Kind: replication.Majority}, false)
}

// ChangeClaims implements register.Data.
func (k replicatedKeys) ChangeClaims(ctx context.Context, f func(crdt.ORSet[string]) (crdt.ORSet[string], error)) error {
	return modify(storeCallOf(ctx), claimsKey, f)
}

// ReadState implements register.Data.
func (k replicatedKeys) ReadState(ctx context.Context, more, repair bool) (crdt.LWWRegister[[]byte], error) {
	level := replication.Level{Kind: replication.Majority}
	if more {
		level = replication.Level{Kind: replication.MajorityPlus, N: statereg.ReadPlus}
	}
	return read[crdt.LWWRegister[[]byte]](storeCallOf(ctx), stateKey, level, repair)
}

// ChangeState implements register.Data.
func (k replicatedKeys) ChangeState(ctx context.Context, f func(crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error)) error {
	return modify(storeCallOf(ctx), stateKey, f)
}

// replicatedStore is the state of coordinators in replicated data. It records the
// acknowledged changes.
type replicatedStore struct {
	d       *sharding
	known   map[edition]coordinator.State
	acked   map[edition]bool
	tried   []coordinator.Change // by nodes without a reply
	last    edition              // that was acknowledged
	holders []*replicator        // the replicators that had it
}

// edition is a version of the state.
type edition struct{ term, rev uint64 }

func (e edition) before(other edition) bool {
	return e.term < other.term || e.term == other.term && e.rev < other.rev
}

// load loads the state.
func (r *replicatedStore) load(at *shardNode, id uint64) {
	at.startStoreCall(func(e *storeCall) {
		state, rev, claimed, err := at.register.Load(e.ctx)
		state = state.Claimed(claimed)
		at.after(0, func() {
			if err != nil {
				r.d.hit("register", "load failed")
				at.reply(coordinator.LoadFailed{ID: id})
				return
			}
			r.d.hit("register", "loaded")
			if state.Holder() != (coordinator.State{}).Holder() {
				r.note(state, rev)
			}
			at.reply(coordinator.Loaded{ID: id, State: state, Rev: rev, Remembered: r.d.rememberStore.shards()})
		})
	})
}

// save stores a change.
func (r *replicatedStore) save(at *shardNode, c coordinator.Save) {
	r.tried = append(r.tried, c.Change)
	at.startStoreCall(func(e *storeCall) {
		err := at.register.Save(e.ctx, c.Change)
		if err == nil {
			r.acknowledged(at, &c.Change)
		}
		at.after(0, func() {
			switch {
			case err == nil:
				r.d.hit("register", "saved")
				at.reply(coordinator.Saved{ID: c.ID})
				return
			case errors.Is(err, statereg.ErrFenced):
				r.d.hit("register", "fenced")
			case errors.Is(err, statereg.ErrConflict):
				r.d.hit("register", "conflict")
			default:
				r.d.hit("register", "save failed")
			}
			at.reply(coordinator.SaveFailed{ID: c.ID, Fenced: errors.Is(err, statereg.ErrFenced)})
		})
	})
}

// note records a stored state. Each version has one state.
func (r *replicatedStore) note(state coordinator.State, rev uint64) {
	at := edition{state.Term(), rev}
	if was, known := r.known[at]; known && r.acked[at] && !was.Equal(state) { // otherwise it was lost with its replicas
		r.d.c.violate("state-is-stored", state.Holder(), "two states are stored in term %d at %d", at.term, at.rev)
	}
	r.known[at] = state
	for _, region := range state.Regions() {
		for _, n := range region.Shards {
			r.d.store.allocated(n, region.Node)
		}
	}
}

// acknowledged checks that each acknowledged change follows the previous acknowledged one, unless
// that was lost with nodes.
func (r *replicatedStore) acknowledged(at *shardNode, c *coordinator.Change) {
	now := edition{c.Term, c.Rev + uint64(len(c.Events))}
	claim := c.Events[0].Kind == coordinator.Started
	switch {
	case claim && r.follows(c):
	case claim && !r.met(at):
		r.d.hit("register", "state lost with its nodes")
		if !r.last.before(now) { // the history begins again
			clear(r.known)
			clear(r.acked)
			r.tried = nil
			r.last = edition{}
		}
	case !claim && r.results(edition{c.Term, c.Rev}, c):
	case now.term < r.last.term: // in flight when the next term began
	default:
		at.violate("state-is-stored", "in term %d a change after %d is acknowledged, and the change acknowledged before is %d of term %d", c.Term, c.Rev, r.last.rev, r.last.term)
	}
	r.note(c.After, now.rev)
	r.acked[now] = true
	if r.last.before(now) {
		r.last, r.holders = now, r.holding(now)
	}
}

// results reports whether a change results from a stored state.
func (r *replicatedStore) results(before edition, c *coordinator.Change) bool {
	after, err := r.known[before].Apply(c.Events...)
	return err == nil && after.Equal(c.After)
}

// follows reports whether a claim follows the last acknowledged change, or a change stored since.
func (r *replicatedStore) follows(c *coordinator.Change) bool {
	if r.last.rev == c.Rev && r.results(r.last, c) {
		return true
	}
	for _, t := range r.tried {
		if after, err := t.After.Apply(c.Events...); t.Rev+uint64(len(t.Events)) == c.Rev && !(edition{t.Term, c.Rev}).before(r.last) && err == nil && after.Equal(c.After) {
			return true
		}
	}
	return false
}

// met reports whether a claim must have read the last acknowledged change: enough of its replicas
// are alive.
func (r *replicatedStore) met(at *shardNode) bool {
	level := replication.Level{Kind: replication.MajorityPlus, N: statereg.ReadPlus}
	view := r.d.c.data.view(at.h.data, level)
	have := 0
	for _, h := range r.holders {
		if !h.ended && view.has(h.h.p.Node()) {
			have++
		}
	}
	return have+needed(level, len(view.nodes)) > len(view.nodes)
}

// holding returns the replicators that have a version of the state, or a later one.
func (r *replicatedStore) holding(at edition) []*replicator {
	var all []*replicator
	for _, h := range r.d.c.data.living() {
		v, _, found := h.value(stateKey)
		if !found {
			continue
		}
		if state, err := as[crdt.LWWRegister[[]byte]](v).Value(); err == nil {
			// The clock of the register is internal to the store.
			s, err := coordinator.DecodeState(state)
			if err == nil && (s.Term() > at.term || s.Term() == at.term && s.Equal(r.known[at])) {
				all = append(all, h)
			}
		}
	}
	return all
}

// was reports whether a state is stored.
func (r *replicatedStore) was(state coordinator.State, rev uint64) bool {
	known, found := r.known[edition{state.Term(), rev}]
	return found && known.Equal(state)
}

const (
	// storeCallID is the first number of requests to replicators that are not the clients'.
	storeCallID = 1 << 62
	// maxTries is how often a key is read or changed until enough replicas take part.
	maxTries = 5

	claimsKey = "sharding|account|terms"
	stateKey  = "sharding|account|state"
)

// errQuorum reports that not enough replicas took part.
var errQuorum = errors.New("not enough replicas")

// storeRequest is a request of a store call to its replicator.
type storeRequest func(replication.Request) replication.Input

// storeCall is a call of the store in replicated data, which waits for the answers of replicas. It is
// a thread that runs only while the simulation waits for it.
type storeCall struct {
	s      *shardNode
	ctx    context.Context //nolint:containedctx // of the call
	cancel context.CancelFunc
	next   func() (storeRequest, bool)
	stop   func()
	ask    func(storeRequest) bool
	key    string
	level  replication.Level
	reply  replication.Reply
}

type storeCallKey struct{}

// storeCallOf returns the store call of a context.
func storeCallOf(ctx context.Context) *storeCall { return ctx.Value(storeCallKey{}).(*storeCall) } //nolint:forcetypeassert,errcheck // see startStoreCall

// startStoreCall calls f, which may send requests to replicas.
func (s *shardNode) startStoreCall(f func(e *storeCall)) {
	e := &storeCall{s: s}
	e.ctx, e.cancel = context.WithCancel(context.WithValue(context.Background(), storeCallKey{}, e))
	e.next, e.stop = iter.Pull(func(yield func(storeRequest) bool) {
		e.ask = yield
		f(e)
	})
	s.storeCalls[e] = true
	s.after(storeTimeout, e.cancel)
	e.resume()
}

// resume runs the call until its next request or its end.
func (e *storeCall) resume() {
	q, asks := e.next()
	if !asks {
		e.end()
		return
	}
	d := e.s.d
	d.storeCallCount++
	id := storeCallID | d.storeCallCount
	e.s.waitingCalls[id] = e
	e.s.h.data.input(q(replication.Request{
		ID: id, Key: e.key, Level: e.level, Timeout: storeTimeout / maxTries, PreferOldest: true,
	}))
}

// end aborts the call.
func (e *storeCall) end() {
	e.cancel()
	e.stop()
	delete(e.s.storeCalls, e)
}

// endStoreCalls gives all of them up.
func (s *shardNode) endStoreCalls() {
	for e := range s.storeCalls { // the order does not matter
		e.end()
	}
	clear(s.waitingCalls)
}

// replied passes the reply of a replicator to the store call that waits for it, and reports whether
// there is one.
func (s *shardNode) replied(a *replication.Reply) bool {
	e := s.waitingCalls[a.ID]
	if e == nil {
		return a.ID >= storeCallID
	}
	delete(s.waitingCalls, a.ID)
	reply := *a
	s.d.hit("replicated", reply.Outcome.String())
	s.after(0, func() {
		if s.storeCalls[e] {
			e.reply = reply
			e.resume()
		}
	})
	return true
}

// try repeats a request until enough replicas take part.
func (e *storeCall) try(key string, level replication.Level, q storeRequest) error {
	for range maxTries {
		e.key, e.level = key, level
		if !e.ask(q) {
			return context.Canceled
		}
		switch a := e.reply; {
		case a.Outcome == replication.Done, a.Outcome == replication.NotFound:
			return nil
		case e.ctx.Err() != nil:
			return e.ctx.Err()
		case a.Outcome == replication.TimedOut, a.Outcome == replication.TooFew:
		case a.Err != nil:
			return a.Err
		default:
			return fmt.Errorf("the replicator returns %v", a.Outcome)
		}
	}
	return errQuorum
}
