// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// The limits of the checkpoints.
const (
	firstStride = 256      // events between two checkpoints, until the bytes of the ID reach their limit
	maxIDBytes  = 4 << 20  // of the checkpoints of one ID
	maxBytes    = 32 << 20 // of all checkpoints
	perState    = 128      // overhead of a checkpoint, in bytes
	maxParallel = 4        // folds at a time
	valueBytes  = 2 << 10  // of a value in a list of changes
)

// folds computes states at any number. It keeps encoded states of recently folded IDs as
// checkpoints, so that a state of a long history needs few events. The memory is bounded in two
// ways: if the checkpoints of an ID exceed maxIDBytes, every second one is dropped and the distance
// doubles; if all exceed maxBytes, the least recently used ID is dropped. Events are immutable, so
// checkpoints stay valid.
type folds struct {
	rt        *eventsourcing.Runtime // reads the journal, and snapshots through a basedStore
	journal   journal.Journal
	snapshots snapshot.Store // nil for none
	slots     chan struct{}

	mu    sync.Mutex
	byID  map[string]*list.Element // of *checkpoints
	used  list.List                // the least recently used ID is last
	bytes int
}

// checkpoints are the states of an ID in the order of their numbers.
type checkpoints struct {
	id     string
	states []State
	stride uint64 // distance of the numbers of new checkpoints
	bytes  int
}

func newFolds(j journal.Journal, s snapshot.Store) (*folds, error) {
	f := &folds{journal: j, snapshots: s, slots: make(chan struct{}, maxParallel), byID: map[string]*list.Element{}}
	var err error
	f.rt, err = eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, basedStore{s}), Workers: 1})
	return f, err
}

// close frees the memory.
func (f *folds) close(ctx context.Context) error {
	f.mu.Lock()
	f.byID, f.bytes = nil, 0
	f.used.Init()
	f.mu.Unlock()
	return f.rt.Close(ctx)
}

// base selects the state from which a fold starts. It travels in the context of the fold.
type base struct {
	checkpoint *State        // nil for none
	limit      uint64        // the highest number of a snapshot; used without a checkpoint
	used       atomic.Uint64 // number of the loaded snapshot; a load may outlive its fold
}

type baseKey struct{}

// basedStore is a snapshot store that loads the base in the context of a call. It never writes.
type basedStore struct{ snapshot.Store }

// Load implements snapshot.Store.
func (s basedStore) Load(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	b, ok := ctx.Value(baseKey{}).(*base)
	if ok && b.checkpoint != nil {
		p := b.checkpoint
		b.used.Store(p.SequenceNr)
		return snapshot.Snapshot{Metadata: snapshot.Metadata{ID: id, SequenceNr: p.SequenceNr, Time: p.Time}, Manifest: p.Manifest, Payload: p.Payload}, nil
	}
	if s.Store == nil || ok && b.limit == 0 {
		return snapshot.Snapshot{}, snapshot.ErrNotFound
	}
	if ok {
		c = c.Bounded()
		c.MaxSequenceNr = min(c.MaxSequenceNr, b.limit)
	}
	found, err := s.Store.Load(ctx, id, c)
	if ok && err == nil {
		b.used.Store(found.SequenceNr)
	}
	return found, err
}

// Close implements snapshot.Store. The owner of the store closes it.
func (basedStore) Close() error { return nil }

// state computes the state of an entity after event number at, from 1 to the highest number,
// without some events. fresh disables snapshots and checkpoints.
func (f *folds) state(ctx context.Context, t *Type, pid string, at uint64, without []uint64, fresh bool) (State, error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return State{}, context.Cause(ctx)
	}
	id, _ := t.EntityID(pid)
	b := &base{}
	if !fresh {
		b.limit = at
		for _, nr := range without {
			b.limit = min(b.limit, max(nr, 1)-1)
		}
		var err error
		if b.checkpoint, err = f.below(ctx, pid, b.limit); err != nil {
			return State{}, err
		}
		if newer := f.snapshotBelow(ctx, pid, b.limit); b.checkpoint != nil && newer > b.checkpoint.SequenceNr {
			b.checkpoint = nil
		}
	}
	w := Wanted{UpTo: at, Without: without, DisableSnapshots: fresh}
	if !fresh && len(without) == 0 {
		from := uint64(0)
		if b.checkpoint != nil {
			from = b.checkpoint.SequenceNr
		}
		w.At = f.numbers(pid, from, at)
		w.Visit = func(s State) error {
			if s.SequenceNr >= b.used.Load() { // states below a snapshot were not computed
				f.keep(pid, s)
			}
			return nil
		}
	}
	s, err := t.Fold(context.WithValue(ctx, baseKey{}, b), f.rt, id, w)
	if err == nil && b.checkpoint != nil && s.Time.IsZero() {
		s.Time = b.checkpoint.Time
	}
	return s, err
}

// snapshotBelow returns the number of the newest snapshot up to a number, 0 for none.
func (f *folds) snapshotBelow(ctx context.Context, pid string, limit uint64) uint64 {
	if f.snapshots == nil || limit == 0 {
		return 0
	}
	for md, err := range f.snapshots.List(ctx, pid, snapshot.UpTo(limit)) {
		if err != nil {
			return 0 // the fold reports it if it needs a snapshot
		}
		return md.SequenceNr
	}
	return 0
}

// below returns the newest checkpoint of an ID up to a number, nil if there is none. If events
// after it are deleted, the checkpoints are dropped: a deletion must also remove the data from
// memory.
func (f *folds) below(ctx context.Context, pid string, limit uint64) (*State, error) {
	found := f.find(pid, limit)
	if found == nil {
		return nil, nil
	}
	first, err := FirstRecord(ctx, f.journal, pid, found.SequenceNr+1)
	if err != nil && Unreachable(ctx, err) {
		return nil, err
	}
	if err != nil || first > 0 && first <= found.SequenceNr {
		return found, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byID[pid]; e != nil {
		f.drop(e)
	}
	return nil, nil
}

func (f *folds) find(pid string, limit uint64) *State {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byID[pid]
	if e == nil {
		return nil
	}
	f.used.MoveToFront(e)
	states := checkpointsOf(e).states
	i, found := slices.BinarySearchFunc(states, limit, bySequenceNr)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	s := states[i] // the payload is immutable
	return &s
}

// drop removes the checkpoints of an ID. mu is locked.
func (f *folds) drop(e *list.Element) {
	c := checkpointsOf(e)
	f.used.Remove(e)
	delete(f.byID, c.id)
	f.bytes -= c.bytes
}

func checkpointsOf(e *list.Element) *checkpoints { return e.Value.(*checkpoints) } //nolint:errcheck,forcetypeassert // the list has no others

func bySequenceNr(s State, nr uint64) int { return cmp.Compare(s.SequenceNr, nr) }

// numbers returns the numbers of missing checkpoints in a range, without its first number.
func (f *folds) numbers(pid string, from, to uint64) (list []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stride, states := uint64(firstStride), []State(nil)
	if e := f.byID[pid]; e != nil {
		c := checkpointsOf(e)
		stride, states = c.stride, c.states
	}
	for nr := from - from%stride + stride; nr <= to; nr += stride {
		if _, found := slices.BinarySearchFunc(states, nr, bySequenceNr); !found {
			list = append(list, nr)
		}
	}
	return list
}

// keep adds a checkpoint.
func (f *folds) keep(pid string, s State) {
	size := len(s.Payload) + len(s.Manifest) + perState
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID == nil || size > maxIDBytes/2 {
		return
	}
	e := f.byID[pid]
	if e == nil {
		e = f.used.PushFront(&checkpoints{id: pid, stride: firstStride})
		f.byID[pid] = e
	}
	c := checkpointsOf(e)
	i, found := slices.BinarySearchFunc(c.states, s.SequenceNr, bySequenceNr)
	if found || s.SequenceNr%c.stride != 0 {
		return
	}
	c.states = slices.Insert(c.states, i, s)
	c.bytes, f.bytes = c.bytes+size, f.bytes+size
	for c.bytes > maxIDBytes && c.stride < math.MaxUint64/2 {
		c.stride *= 2
		before := c.bytes
		c.states = slices.DeleteFunc(c.states, func(s State) bool {
			drop := s.SequenceNr%c.stride != 0
			if drop {
				c.bytes -= len(s.Payload) + len(s.Manifest) + perState
			}
			return drop
		})
		f.bytes += c.bytes - before
	}
	for f.bytes > maxBytes && f.used.Len() > 1 {
		f.drop(f.used.Back())
	}
}

// state answers the request for a state.
func (s *Server) state(ctx context.Context, q StateQuery) (*StateView, error) {
	t, highest, err := s.replayable(ctx, q.ID, q.Without)
	if err != nil {
		return nil, err
	}
	at := cmp.Or(q.At, highest)
	f, err := s.fold(ctx, t, q.ID, at, highest, q.Without)
	if err != nil {
		return nil, err
	}
	v := stateViewOf(highest, &f)
	v.Nr = at
	v.Payload = s.statePayload(q.ID, &f)
	return v, nil
}

// replayable checks a request for a state and returns the type and the highest number of the
// entity.
func (s *Server) replayable(ctx context.Context, id string, without []uint64) (*Type, uint64, error) {
	switch {
	case len(without) > maxItems:
		return nil, 0, fmt.Errorf("%w: Without has %d numbers, at most %d are allowed", ErrInvalid, len(without), maxItems)
	case slices.Contains(without, 0):
		return nil, 0, fmt.Errorf("%w: Without contains 0: event numbers start at 1", ErrInvalid)
	}
	highest, err := s.existing(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	t := TypeOfID(s.cfg.Types, id)
	if t == nil || s.folds == nil {
		name, _ := journal.SplitID(id)
		return nil, 0, fmt.Errorf("%w: %.100q", ErrNoType, cmp.Or(name, id))
	}
	return t, highest, nil
}

// fold computes a state. The number 0 selects the empty state.
func (s *Server) fold(ctx context.Context, t *Type, id string, at, highest uint64, without []uint64) (State, error) {
	if at > highest {
		return State{}, fmt.Errorf("%w: the highest number of %q is %d", ErrInvalid, id, highest)
	}
	if at == 0 {
		own, _ := t.EntityID(id)
		f, err := t.empty(own)
		return f, s.foldError(ctx, id, err)
	}
	f, err := s.folds.state(ctx, t, id, at, without, false)
	return f, s.foldError(ctx, id, err)
}

// foldError returns an error for the operator. With redaction, the error of the program's code is
// left out, because its text may quote a field.
func (s *Server) foldError(ctx context.Context, id string, err error) error {
	switch {
	case err == nil, ctx.Err() != nil, Unreachable(ctx, err), errors.Is(err, journal.ErrHistoryGap):
		return err
	case s.cfg.Redact != nil:
		return fmt.Errorf("%w: the state of %q", errUncomputable, id)
	}
	return fmt.Errorf("%w: %w", errUncomputable, panics.Safe(err))
}

var errUncomputable = errors.New("inspect: the state cannot be computed")

// stateViewOf describes a state, without its payload.
func stateViewOf(highest uint64, f *State) *StateView {
	return &StateView{
		Nr: f.SequenceNr, Time: f.Time, Highest: highest, From: f.SnapshotNr, Records: f.Records,
		Manifest: cut(f.Manifest, 2*maxTag), Payload: Payload{Size: len(f.Payload)},
	}
}

func (s *Server) statePayload(id string, f *State) Payload {
	return s.payload(id, f.Manifest, FormatOfState(f.Manifest, f.Payload), f.Payload, payloadBytes)
}

// difference compares two states of an entity.
func (s *Server) difference(ctx context.Context, q DifferenceQuery) (*Difference, error) {
	t, highest, err := s.replayable(ctx, q.ID, q.Without)
	if err != nil {
		return nil, err
	}
	before, err := s.fold(ctx, t, q.ID, q.From, highest, nil)
	if err != nil {
		return nil, err
	}
	after, err := s.fold(ctx, t, q.ID, q.To, highest, q.Without)
	if err != nil {
		return nil, err
	}
	before.SequenceNr, after.SequenceNr = q.From, q.To
	return s.differ(q.ID, highest, &before, &after), nil
}

// differ returns the difference of two states, with values of a bounded size.
func (s *Server) differ(id string, highest uint64, before, after *State) *Difference {
	d := &Difference{Before: *stateViewOf(highest, before), After: *stateViewOf(highest, after), Equal: before.Equal(after)}
	if d.Equal {
		return d
	}
	changes := compare(before, after, s.redactionOf(id, after.Manifest))
	d.Changes, d.Omitted = changes.List, changes.Omitted
	for i := range d.Changes {
		c := &d.Changes[i]
		c.Path = cut(c.Path, valueBytes)
		for _, value := range []*json.RawMessage{&c.Before, &c.After} {
			if escapedJSON(*value) > valueBytes {
				*value, _ = json.Marshal(cut(string(*value), valueBytes/8))
			}
		}
	}
	if len(d.Changes) == 0 {
		d.Problem = cut(changes.Err.Error(), maxText)
	}
	return d
}

// live compares the state of an entity in memory with the state that its events give.
func (s *Server) live(ctx context.Context, id string) (*Live, error) {
	t, highest, err := s.replayable(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	inMemory, presence, err := s.inMemory(ctx, t, id)
	if err != nil || inMemory == nil {
		return &Live{Presence: presence}, err
	}
	out := &Live{Presence: presence, State: stateViewOf(max(highest, inMemory.state.SequenceNr), &inMemory.state)}
	replayed := State{}
	if at := inMemory.state.SequenceNr; at > 0 {
		replayed, err = s.folds.state(ctx, t, id, at, nil, true)
		if errors.Is(err, journal.ErrHistoryGap) { // the first event is deleted
			replayed, err = s.folds.state(ctx, t, id, at, nil, false)
		}
		err = s.foldError(ctx, id, err)
	} else {
		replayed, err = s.fold(ctx, t, id, 0, highest, nil)
	}
	if err != nil {
		return nil, err
	}
	out.State.Time = replayed.Time
	out.State.Payload = s.statePayload(id, &inMemory.state)
	out.Difference = s.differ(id, highest, &replayed, &inMemory.state)
	return out, nil
}

// memory is a copy of an entity in memory.
type memory struct {
	state      State
	err        error // reason why the state cannot be encoded
	deliveries []hosting.Delivery
	total      int
}

// maxDeliveries is the number of listed deliveries.
const maxDeliveries = 100

// inMemory copies the state of an entity in memory, nil if it does not run in this process. All
// events of the state are durable.
func (s *Server) inMemory(ctx context.Context, t *Type, id string) (*memory, string, error) {
	if s.cfg.Runtime == nil {
		return nil, eventsourcing.Absent.String(), nil
	}
	own, _ := t.EntityID(id)
	var read atomic.Pointer[memory] // the function may be called after the end of ctx
	presence, err := hosting.InspectorOf(s.cfg.Runtime).Live(ctx, t.Name, own, func(state any, seqNr uint64) {
		m := &memory{}
		m.err = panics.Catch(func() (err error) {
			if m.state, err = t.encode(state); err == nil {
				m.deliveries, m.total = t.pending(state, maxDeliveries)
			}
			return err
		})
		m.state.SequenceNr = seqNr
		read.Store(m)
	})
	m := read.Load()
	switch {
	case errors.Is(err, eventsourcing.ErrStopped), errors.Is(err, eventsourcing.ErrClosed):
		return nil, eventsourcing.Absent.String(), nil // it has stopped in the meantime
	case err != nil:
		return nil, presence, fmt.Errorf("read the entity %q in memory: %w", id, err)
	case m == nil:
		return nil, presence, nil
	case m.err != nil:
		return nil, presence, s.foldError(ctx, id, m.err)
	}
	return m, presence, nil
}

// pending lists the unconfirmed deliveries of an entity: those of the instance in memory, or those
// that its events give.
func (s *Server) pending(ctx context.Context, id string) (*PendingPage, error) {
	t, highest, err := s.replayable(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	m, _, err := s.inMemory(ctx, t, id)
	if err != nil {
		return nil, err
	}
	page := &PendingPage{Live: m != nil}
	if m == nil {
		f, err := s.fold(ctx, t, id, highest, highest, nil)
		if err != nil {
			return nil, err
		}
		own, _ := t.EntityID(id)
		m = &memory{}
		if m.deliveries, m.total, err = t.pendingOf(own, &f); err != nil {
			return nil, s.foldError(ctx, id, err)
		}
	}
	page.Total = m.total
	left := pageBytes
	for i := range m.deliveries {
		d := &m.deliveries[i]
		v := Delivery{Part: cut(d.Part, maxTag), Nr: d.Nr, Type: cut(d.Type, maxTag), ID: cut(d.ID, 2*maxTag), Command: cut(d.Command, maxTag), Attempts: d.Attempts}
		if d.Err != nil {
			v.Failure = "the delivery failed"
			if s.cfg.Redact == nil {
				v.Failure = cut(panics.Safe(d.Err).Error(), maxText)
			}
		}
		v.Payload = s.payload(id, "delivery", Msgpack, d.Payload, cellBytes)
		page.Deliveries = append(page.Deliveries, v)
		if left -= 512 + escapedJSON(v.JSON) + escaped(v.Cut) + escaped(v.Failure) + escaped(v.ID); left < 0 {
			break
		}
	}
	return page, nil
}
