// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

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
