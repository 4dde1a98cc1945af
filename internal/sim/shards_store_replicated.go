// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	statereg "github.com/refold-io/refold/internal/shardcore/register"
)

// replicatedKeys are the two keys of replicated data in which the state of coordinators is, as a node reaches them.
type replicatedKeys struct{ s *site }

// Self implements register.Data.
func (k replicatedKeys) Self() *crdt.Self { return k.s.h.data.self }

func read[T any](e *errand, key string, level replication.Level, repair bool) (v T, err error) {
	err = e.try(key, level, func(in replication.Request) replication.Input {
		return replication.Get{Request: in, RepairPeers: repair}
	})
	if err == nil && e.reply.Outcome == replication.Done {
		v = as[T](e.reply.Value)
	}
	return v, err
}

func modify[T any](e *errand, key string, f func(T) (T, error)) error {
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
	return read[crdt.ORSet[string]](errandOf(ctx), claimsKey, replication.Level{Kind: replication.Majority}, false)
}

// ChangeClaims implements register.Data.
func (k replicatedKeys) ChangeClaims(ctx context.Context, f func(crdt.ORSet[string]) (crdt.ORSet[string], error)) error {
	return modify(errandOf(ctx), claimsKey, f)
}

// ReadState implements register.Data.
func (k replicatedKeys) ReadState(ctx context.Context, more, repair bool) (crdt.LWWRegister[[]byte], error) {
	level := replication.Level{Kind: replication.Majority}
	if more {
		level = replication.Level{Kind: replication.MajorityPlus, N: statereg.ReadPlus}
	}
	return read[crdt.LWWRegister[[]byte]](errandOf(ctx), stateKey, level, repair)
}

// ChangeState implements register.Data.
func (k replicatedKeys) ChangeState(ctx context.Context, f func(crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error)) error {
	return modify(errandOf(ctx), stateKey, f)
}

// replicatedStore is the state of coordinators in replicated data. It knows what was acknowledged.
type replicatedStore struct {
	d       *sharding
	known   map[edition]coordinator.State
	acked   map[edition]bool
	tried   []coordinator.Change // by nodes that did not get an answer, or have not yet
	last    edition              // that was acknowledged
	holders []*replicator        // who had it then
}

// edition is a version of the state.
type edition struct{ term, rev uint64 }

func (e edition) before(other edition) bool {
	return e.term < other.term || e.term == other.term && e.rev < other.rev
}

// load reads the state.
func (r *replicatedStore) load(at *site, id uint64) {
	m := at.m
	at.errand(func(e *errand) {
		state, rev, err := at.register.Load(e.ctx)
		at.after(0, func() {
			if err != nil {
				r.d.hit("register", "load failed")
				r.d.store.answer(at, m, coordinator.LoadFailed{ID: id})
				return
			}
			r.d.hit("register", "loaded")
			if state.Holder() != (coordinator.State{}).Holder() {
				r.note(state, rev)
			}
			r.d.store.answer(at, m, coordinator.Loaded{ID: id, State: state, Rev: rev, Remembered: r.d.memory.shards()})
		})
	})
}

// save stores a change.
func (r *replicatedStore) save(at *site, c coordinator.Save) {
	m := at.m
	r.tried = append(r.tried, c.Change)
	at.errand(func(e *errand) {
		err := at.register.Save(e.ctx, c.Change)
		if err == nil {
			r.acknowledged(at, &c.Change)
		}
		at.after(0, func() {
			switch {
			case err == nil:
				r.d.hit("register", "saved")
				r.d.store.answer(at, m, coordinator.Saved{ID: c.ID})
				return
			case errors.Is(err, statereg.ErrFenced):
				r.d.hit("register", "fenced")
			case errors.Is(err, statereg.ErrConflict):
				r.d.hit("register", "conflict")
			default:
				r.d.hit("register", "save failed")
			}
			r.d.store.answer(at, m, coordinator.SaveFailed{ID: c.ID, Fenced: errors.Is(err, statereg.ErrFenced)})
		})
	})
}

// note takes note of what is stored: there is one state of each version.
func (r *replicatedStore) note(state coordinator.State, rev uint64) {
	at := edition{state.Term(), rev}
	if was, known := r.known[at]; known && r.acked[at] && !was.Equal(state) { // else it was lost with who had it
		r.d.c.violate("state-is-stored", state.Holder(), "two states are stored in term %d at %d", at.term, at.rev)
	}
	r.known[at] = state
	for _, region := range state.Regions() {
		for _, n := range region.Shards {
			r.d.store.allocated(n, region.Node)
		}
	}
}

// acknowledged: what is acknowledged stands behind what was acknowledged before. That is lost only with nodes.
func (r *replicatedStore) acknowledged(at *site, c *coordinator.Change) {
	now := edition{c.Term, c.Rev + uint64(len(c.Events))}
	claim := c.Events[0].Kind == coordinator.Started
	switch {
	case claim && r.follows(c):
	case claim && !r.met(at):
		r.d.hit("register", "state lost with its nodes")
		if !r.last.before(now) { // all begins anew
			clear(r.known)
			clear(r.acked)
			r.tried = nil
			r.last = edition{}
		}
	case !claim && r.behind(edition{c.Term, c.Rev}, c):
	case now.term < r.last.term: // it was under way when the next term began
	default:
		at.violate("state-is-stored", "in term %d a change behind %d is acknowledged, and what was acknowledged before is %d of term %d", c.Term, c.Rev, r.last.rev, r.last.term)
	}
	r.note(c.After, now.rev)
	r.acked[now] = true
	if r.last.before(now) {
		r.last, r.holders = now, r.holding(now)
	}
}

// behind reports whether a change makes what it says of what was stored.
func (r *replicatedStore) behind(before edition, c *coordinator.Change) bool {
	after, err := r.known[before].Apply(c.Events...)
	return err == nil && after.Equal(c.After)
}

// follows reports whether a claim stands behind what was acknowledged last, or behind something that has come to be stored since.
func (r *replicatedStore) follows(c *coordinator.Change) bool {
	if r.last.rev == c.Rev && r.behind(r.last, c) {
		return true
	}
	for _, t := range r.tried {
		if after, err := t.After.Apply(c.Events...); t.Rev+uint64(len(t.Events)) == c.Rev && !(edition{t.Term, c.Rev}).before(r.last) && err == nil && after.Equal(c.After) {
			return true
		}
	}
	return false
}

// met reports whether a claim must have read what was acknowledged last: so many of those who had it are still there.
func (r *replicatedStore) met(at *site) bool {
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

// holding returns who has a version of the state, or a later one.
func (r *replicatedStore) holding(at edition) []*replicator {
	var all []*replicator
	for _, h := range r.d.c.data.living() {
		v, _, found := h.value(stateKey)
		if !found {
			continue
		}
		if state, err := as[crdt.LWWRegister[[]byte]](v).Value(); err == nil {
			// The clock of the register is a matter of the store.
			s, err := coordinator.DecodeState(state)
			if err == nil && (s.Term() > at.term || s.Term() == at.term && s.Equal(r.known[at])) {
				all = append(all, h)
			}
		}
	}
	return all
}

// was reports whether a state is one that is stored.
func (r *replicatedStore) was(state coordinator.State, rev uint64) bool {
	known, found := r.known[edition{state.Term(), rev}]
	return found && known.Equal(state)
}

const (
	// errandID is the first number of requests to replicators that are not the clients'.
	errandID = 1 << 62
	// maxTries is how often a key is read or changed until enough replicas take part.
	maxTries = 5

	claimsKey = "sharding|account|terms"
	stateKey  = "sharding|account|state"
)

// errQuorum says that not enough replicas have taken part.
var errQuorum = errors.New("not enough replicas")

// question is something that an errand asks its replicator.
type question func(replication.Request) replication.Input

// errand is a call of the store in replicated data, which waits for the answers of replicas. It is a thread that runs only while
// the simulation waits for it.
type errand struct {
	s      *site
	ctx    context.Context //nolint:containedctx // of the call
	cancel context.CancelFunc
	next   func() (question, bool)
	stop   func()
	ask    func(question) bool
	key    string
	level  replication.Level
	reply  replication.Reply
}

type errandKey struct{}

// errandOf returns the errand that a call belongs to.
func errandOf(ctx context.Context) *errand { return ctx.Value(errandKey{}).(*errand) } //nolint:forcetypeassert,errcheck // see errand

// errand calls f, which may ask replicas.
func (s *site) errand(f func(e *errand)) {
	e := &errand{s: s}
	e.ctx, e.cancel = context.WithCancel(context.WithValue(context.Background(), errandKey{}, e))
	e.next, e.stop = iter.Pull(func(yield func(question) bool) {
		e.ask = yield
		f(e)
	})
	s.errands[e] = true
	s.after(storeTimeout, e.cancel)
	e.goOn()
}

// goOn lets it run until it asks something or is done.
func (e *errand) goOn() {
	q, asks := e.next()
	if !asks {
		e.end()
		return
	}
	d := e.s.d
	d.errands++
	id := errandID | d.errands
	e.s.awaits[id] = e
	e.s.h.data.step(replica.Batch{Inputs: []replication.Input{q(replication.Request{
		ID: id, Key: e.key, Level: e.level, Timeout: storeTimeout / maxTries, PreferOldest: true,
	})}})
}

// end gives it up.
func (e *errand) end() {
	e.cancel()
	e.stop()
	delete(e.s.errands, e)
}

// endErrands gives all of them up.
func (s *site) endErrands() {
	for e := range s.errands { // the order does not matter
		e.end()
	}
	clear(s.awaits)
}

// replied hands over the answer of a replicator, and reports whether an errand has waited for it.
func (s *site) replied(a *replication.Reply) bool {
	e := s.awaits[a.ID]
	if e == nil {
		return a.ID >= errandID
	}
	delete(s.awaits, a.ID)
	reply := *a
	s.d.hit("replicated", reply.Outcome.String())
	s.after(0, func() {
		if s.errands[e] {
			e.reply = reply
			e.goOn()
		}
	})
	return true
}

// try asks until enough replicas have taken part.
func (e *errand) try(key string, level replication.Level, q question) error {
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
			return fmt.Errorf("the replicator says %v", a.Outcome)
		}
	}
	return errQuorum
}
