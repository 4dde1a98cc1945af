// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	statereg "github.com/refold-io/refold/internal/shardcore/register"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// storeTimeout is the maximum duration of a call of a store.
const storeTimeout = 5 * time.Second

// stateStore is a journal shared by all nodes with the state of coordinators.
type stateStore struct {
	trouble

	d      *sharding
	events []coordinator.Event
	fold   *coordinator.Fold
	state  coordinator.State // after all events
	homes  map[home]bool     // all homes that were ever stored

	replicated *replicatedStore // nil if the state is in the journal
}

// home is a node to which a shard is allocated.
type home struct {
	shard shardcore.Shard
	node  identity.Node
}

func (s *stateStore) fails() bool { return s.failing && !s.d.quiet }

func (d *sharding) storeTrouble() {
	s := d.store
	if !d.plan.Calm && s.trouble == (trouble{}) {
		s.begin(&d.workload, "the journal")
	}
}

func (d *sharding) storeDelay() time.Duration {
	if d.store.slow && !d.quiet {
		return d.between(10*time.Millisecond, 3*time.Second)
	}
	return d.between(200*time.Microsecond, 12*time.Millisecond)
}

// fate returns the duration of a call, whether it takes effect, and whether it gets a reply.
func (s *stateStore) fate() (took time.Duration, stored, replies bool) {
	d := s.d
	took = d.storeDelay()
	if !s.fails() || d.rand.IntN(3) == 0 {
		return took, true, true
	}
	n := d.rand.IntN(4)
	d.hit("journal", []string{"stored", "stored without a reply", "failed", "lost"}[n])
	if n == 1 && d.rand.IntN(2) == 0 {
		took = d.between(0, 8*time.Second)
		d.hit("journal", "stored late")
	}
	return took, n < 2, n%2 == 0
}

// append stores a change. The errors are those of register.Store.
func (s *stateStore) append(c coordinator.Change) error {
	if c.Rev != uint64(len(s.events)) {
		s.d.hit("journal", "conflict")
		if c.Term < s.state.Term() {
			return statereg.ErrFenced
		}
		return statereg.ErrConflict
	}
	for _, e := range c.Events {
		if err := s.fold.Apply(e); err != nil {
			s.d.c.violate("state-is-stored", identity.Node{}, "an invalid change is stored: %v", err)
			return err
		}
		s.d.hit("stored", e.Kind.String())
		for _, n := range e.Shards {
			if e.Kind == coordinator.HomesAllocated {
				s.homes[home{n, e.Node}] = true
			}
		}
	}
	s.events = append(s.events, c.Events...)
	s.state = s.fold.State()
	if !s.state.Equal(c.After) {
		s.d.c.violate("state-is-stored", s.state.Holder(), "after %d events the stored state differs from the coordinator's", len(s.events))
	}
	return nil
}

var (
	errStoreFailed   = errors.New("store failed")
	errStoreTimedOut = errors.New("store timed out")
	errStoreFenced   = errors.New("fenced")
)

// call executes a call of a node. access reads or changes the journal. answer gets the error of
// access, or the error of the call.
func (s *stateStore) call(at *shardNode, access func() error, answer func(error)) {
	took, stored, replies := s.fate()
	if !replies {
		at.after(storeTimeout, func() { answer(errStoreTimedOut) })
	} else if !stored {
		at.after(took, func() { answer(errStoreFailed) })
	}
	if stored {
		s.d.w.After(took, func() {
			if err := access(); replies {
				at.after(s.d.between(0, 5*time.Millisecond), func() { answer(err) })
			}
		})
	}
}

func (s *stateStore) save(at *shardNode, c coordinator.Save) {
	if s.replicated != nil {
		s.replicated.save(at, c)
		return
	}
	s.call(at, func() error { return s.append(c.Change) }, func(err error) { at.replySaved(c.ID, err) })
}

func (s *stateStore) load(at *shardNode, id uint64) {
	if s.replicated != nil {
		s.replicated.load(at, id)
		return
	}
	var state coordinator.State
	var rev uint64
	s.call(at, func() error {
		state, rev = s.state, uint64(len(s.events))
		return nil
	}, func(err error) { at.replyLoaded(id, state, rev, err) })
}

func (s *stateStore) checkTerm(at *shardNode, term uint64) {
	var stored uint64
	answer := func(err error) {
		if s.d.hit("sharding", "term checked"); err == nil {
			at.step(shardcore.TermChecked{Term: term, Stored: stored})
		}
	}
	if s.replicated == nil {
		s.call(at, func() error { stored = s.state.Term(); return nil }, answer)
		return
	}
	at.startStoreCall(func(e *storeCall) {
		var err error
		_, _, stored, err = at.register.Load(e.ctx)
		at.after(0, func() { answer(err) })
	})
}

func (s *shardNode) replyLoaded(id uint64, state coordinator.State, rev uint64, err error) {
	if err != nil {
		s.reply(coordinator.LoadFailed{ID: id})
		return
	}
	s.reply(coordinator.Loaded{ID: id, State: state, Rev: rev, Remembered: s.d.rememberStore.shards()})
}

func (s *shardNode) replySaved(id uint64, err error) {
	if err != nil {
		s.reply(coordinator.SaveFailed{ID: id, Fenced: errors.Is(err, statereg.ErrFenced)})
		return
	}
	s.reply(coordinator.Saved{ID: id})
}

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
	tried   []coordinator.Change // changes whose nodes have not received a reply
	last    edition              // the last acknowledged version
	holders []*replicator        // the replicators that held this version
}

// edition is a version of the state.
type edition struct{ term, rev uint64 }

func (e edition) before(other edition) bool {
	return e.term < other.term || e.term == other.term && e.rev < other.rev
}

func (r *replicatedStore) load(at *shardNode, id uint64) {
	at.startStoreCall(func(e *storeCall) {
		state, rev, claimed, err := at.register.Load(e.ctx)
		state = state.Claimed(claimed)
		at.after(0, func() {
			if err != nil {
				r.d.hit("register", "load failed")
			} else {
				r.d.hit("register", "loaded")
				if state.Holder() != (coordinator.State{}).Holder() {
					r.note(state, rev)
				}
			}
			at.replyLoaded(id, state, rev, err)
		})
	})
}

func (r *replicatedStore) save(at *shardNode, c coordinator.Save) {
	r.tried = append(r.tried, c.Change)
	at.startStoreCall(func(e *storeCall) {
		err := at.register.Save(e.ctx, c.Change)
		row := "save failed"
		switch {
		case err == nil:
			row = "saved"
			r.acknowledged(at, &c.Change)
		case errors.Is(err, statereg.ErrFenced):
			row = "fenced"
		case errors.Is(err, statereg.ErrConflict):
			row = "conflict"
		}
		r.d.hit("register", row)
		at.after(0, func() { at.replySaved(c.ID, err) })
	})
}

// note records a stored state. Each version has one state.
func (r *replicatedStore) note(state coordinator.State, rev uint64) {
	at := edition{state.Term(), rev}
	if was, known := r.known[at]; known && r.acked[at] && !was.Equal(state) { // a state without an acknowledgement may have been lost with its replicas
		r.d.c.violate("state-is-stored", state.Holder(), "two states are stored in term %d at revision %d", at.term, at.rev)
	}
	r.known[at] = state
	for _, region := range state.Regions() {
		for _, n := range region.Shards {
			r.d.store.homes[home{n, region.Node}] = true
		}
	}
}

// acknowledged checks that each acknowledged change follows the previous acknowledged one, unless
// the previous one was lost with its nodes.
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
	case now.term < r.last.term: // the change was in flight when the next term began
	default:
		at.h.violate("state-is-stored", "in term %d a change of revision %d is acknowledged, but the last acknowledged revision is %d in term %d", c.Term, c.Rev, r.last.rev, r.last.term)
	}
	r.note(c.After, now.rev)
	r.acked[now] = true
	if r.last.before(now) {
		r.last, r.holders = now, r.holding(now)
	}
}

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

// met reports whether a claim must have read the last acknowledged change. This holds if so many
// replicas of the change are alive that each majority read reaches one of them.
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

const (
	// storeCallID is the first number of the requests of store calls. Clients use lower numbers.
	storeCallID = 1 << 62
	// maxTries is how often a key is read or changed until enough replicas take part.
	maxTries = 5

	claimsKey = "sharding|account|terms"
	stateKey  = "sharding|account|state"
)

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

func (e *storeCall) end() {
	e.cancel()
	e.stop()
	delete(e.s.storeCalls, e)
}

// endStoreCalls abandons all store calls.
func (s *shardNode) endStoreCalls() {
	for e := range s.storeCalls { // the order does not matter
		e.end()
	}
	clear(s.waitingCalls)
}

// replied passes the reply of a replicator to the store call that waits for this reply. It reports
// whether the reply belongs to a store call.
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

// replicatedEntities stores remembered entities in replicated data, in a set for each shard.
// Nothing prevents a previous owner from changing the set. A set is lost with its nodes, so all
// entities are found again only without failures.
type replicatedEntities struct {
	d      *sharding
	knows  map[owner]map[string]bool           // entities that each owner has loaded or stored
	last   map[shardcore.Shard]map[string]bool // entities of the last owner
	unsure map[shardcore.Shard]bool            // an update without a reply preceded its load
	open   map[shardcore.Shard]int             // updates without a reply
	turns  map[home][]func()                   // calls that wait, by shard and calling node
}

// ask makes a call after the earlier calls of the node for the same shard.
func (m *replicatedEntities) ask(s *shardNode, r shardcore.RememberCall, me owner, answer func([]string, error)) {
	if r.Update != nil {
		m.open[r.Shard]++
	}
	at := home{r.Shard, s.h.p.Node()}
	m.turns[at] = append(m.turns[at], func() {
		s.startStoreCall(func(e *storeCall) {
			answer(m.call(e, r, me))
			s.after(0, func() {
				if m.turns[at] = m.turns[at][1:]; len(m.turns[at]) > 0 {
					m.turns[at][0]()
				}
			})
		})
	})
	if len(m.turns[at]) == 1 {
		m.turns[at][0]()
	}
}

// call loads or stores which entities of a shard run.
func (m *replicatedEntities) call(e *storeCall, r shardcore.RememberCall, me owner) ([]string, error) {
	key, self := fmt.Sprintf("shard-account||%d", r.Shard), e.s.h.data.self
	if r.Update == nil {
		set, err := read[crdt.ORSet[string]](e, key, replication.Level{Kind: replication.Majority}, false)
		if err != nil {
			return nil, err
		}
		ids, err := set.Elements()
		if err == nil {
			m.loaded(e.s, me, ids)
		}
		return ids, err
	}
	err := modify(e, key, func(set crdt.ORSet[string]) (crdt.ORSet[string], error) {
		set, err := set.Add(self, slices.DeleteFunc(slices.Clone(r.Update.Started), set.Contains)...)
		if err != nil {
			return set, err
		}
		return set.Remove(self, r.Update.Stopped...)
	})
	if err == nil {
		m.open[r.Shard]--
		note(m.knows[me], r.Update)
	}
	return nil, err
}

// loaded checks that the next owner of a shard loads the stored entities, unless a failure has
// occurred. Entities that are removed while nodes are pruned may be added again.
func (m *replicatedEntities) loaded(s *shardNode, me owner, ids []string) {
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	m.unsure[me.Shard] = m.unsure[me.Shard] || m.open[me.Shard] > 0
	was, stored := m.last[me.Shard]
	same := maps.Equal(known, was) || m.d.c.data.plan.Pruned && contains(known, was)
	if stored && m.d.plan.Calm && !m.unsure[me.Shard] && !same {
		s.h.violate("remembered-is-loaded", "shard %d: the entities %v are loaded, but %v were stored", me.Shard, ids, was)
	}
	m.knows[me], m.last[me.Shard] = known, known
}

func contains(a, b map[string]bool) bool {
	for id := range b {
		if !a[id] {
			return false
		}
	}
	return true
}

// wrong reports whether an entity's remembered state differs from its running state although no
// failure explains this.
func (m *replicatedEntities) wrong(a *account) bool {
	known := m.last[a.shard]
	return m.d.plan.Calm && !m.unsure[a.shard] && m.open[a.shard] == 0 && known[a.id] != (len(a.running) > 0)
}

// rememberedEntities is the store of remembered entities, in the same journal as the commands. The
// last node that loads a shard owns the shard.
type rememberedEntities struct {
	d          *sharding
	replicated *replicatedEntities // nil if the journal stores them
	known      map[shardcore.Shard]bool
	entities   map[shardcore.Shard]map[string]bool
	owner      map[shardcore.Shard]owner
}

type owner struct {
	s *shardNode
	shardcore.ShardRun
}

func (m *rememberedEntities) shards() []shardcore.Shard { return slices.Sorted(maps.Keys(m.known)) }

func (m *rememberedEntities) add(s *shardNode, a coordinator.AddShards) {
	m.d.store.call(s, func() error {
		for _, n := range a.Shards {
			m.known[n] = true
		}
		return nil
	}, func(err error) { s.reply(coordinator.ShardsAdded{ID: a.ID, Failed: err != nil}) })
}

// ask loads or updates the remembered entities of a shard. A replaced owner cannot update them.
func (m *rememberedEntities) ask(s *shardNode, r shardcore.RememberCall) {
	me, table := owner{s, r.ShardRun}, "memory"
	if m.replicated != nil {
		table = "replicated memory"
	}
	answer := func(ids []string, err error) {
		row, in := "", shard.Input(nil)
		switch {
		case r.Update == nil && err != nil:
			row, in = "load failed", shard.LoadFailed{}
		case r.Update == nil:
			row, in = "loaded", shard.Loaded{Entities: ids}
		case err != nil:
			row, in = "update failed", shard.UpdateFailed{ID: r.Update.ID}
		default:
			row, in = "updated", shard.Updated{ID: r.Update.ID}
		}
		m.d.hit(table, row)
		s.after(0, func() { s.step(shardcore.ShardInput{ShardRun: r.ShardRun, Input: in}) })
	}
	if m.replicated != nil {
		m.replicated.ask(s, r, me, answer)
		return
	}
	var ids []string
	m.d.store.call(s, func() error {
		switch {
		case r.Update == nil:
			m.owner[r.Shard] = me
			ids = slices.Sorted(maps.Keys(m.entities[r.Shard]))
			return nil
		case m.owner[r.Shard] != me:
			m.d.hit("memory", "fenced")
			return errStoreFenced
		}
		if m.entities[r.Shard] == nil {
			m.entities[r.Shard] = map[string]bool{}
		}
		note(m.entities[r.Shard], r.Update)
		return nil
	}, func(err error) { answer(ids, err) })
}

func note(at map[string]bool, u *shard.Update) {
	for _, id := range u.Started {
		at[id] = true
	}
	for _, id := range u.Stopped {
		delete(at, id)
	}
}

// has reports whether an owner has stored that an entity runs.
func (m *rememberedEntities) has(s *shardNode, at shardcore.ShardRun, id string) bool {
	if m.replicated != nil {
		return m.replicated.knows[owner{s, at}][id]
	}
	return m.entities[at.Shard][id]
}

// wrong reports whether an entity's remembered state differs from its running state.
func (m *rememberedEntities) wrong(a *account) bool {
	if m.replicated != nil {
		return m.replicated.wrong(a)
	}
	return m.entities[a.shard][a.id] != (len(a.running) > 0)
}
