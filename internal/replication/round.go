// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// maxSecondaries is how many nodes more than needed are asked when some do not
// answer.
const maxSecondaries = 10

// roundsState are the requests that wait for others.
type roundsState struct {
	open map[uint64]*round
	due  roundHeap
	last uint64
	free []*round // that are over
}

// maxFree is how many rounds that are over are kept to be used again.
const maxFree = 256

// take returns a round to begin with.
func (s *roundsState) take() *round {
	n := len(s.free)
	if n == 0 {
		return &round{}
	}
	r := s.free[n-1]
	s.free[n-1] = nil
	s.free = s.free[:n-1]
	*r = round{targets: r.targets[:0]}
	return r
}

// end takes back a round that is over. It says the same until another one begins.
func (s *roundsState) end(r *round) {
	delete(s.open, r.nr)
	heap.Remove(&s.due, r.index)
	if len(s.free) < maxFree {
		r.value, r.delta = crdt.Value{}, nil
		for i := range r.targets {
			r.targets[i].answer = nil
		}
		s.free = append(s.free, r)
	}
}

func (s *roundsState) next() time.Duration {
	if len(s.due) == 0 {
		return Never
	}
	return s.due[0].due
}

func (s *roundsState) sorted() []*round {
	return slices.SortedFunc(maps.Values(s.open), func(a, b *round) int { return cmp.Compare(a.nr, b.nr) })
}

// phase is what a round waits for.
type phase uint8

const (
	writing phase = iota
	reading
	repairing // what was read is written to those that don't have it
)

// round is a request that waits for others.
type round struct {
	nr       uint64
	id       uint64 // of the request
	key      string
	phase    phase
	repair   bool // a read is to be followed by repairing
	targets  []target
	needed   int // of the targets: those that are asked at once
	required int // replicas
	total    int
	answered int // replicas
	own      int // 1 if this one counts
	failed   int // targets that said no
	verdict  Verdict
	tooFew   bool
	deadline time.Duration
	due      time.Duration // the second wave, or the deadline
	waved    bool
	index    int // in the heap
	storing  bool
	durable  bool
	value    crdt.Value
	found    Outcome // what a read has found, with the value, or what a write is to be answered with
	delta    []byte  // an encoded Delta, nil if whole values are sent
}

// target is a node that a round asks.
type target struct {
	node   identity.Node
	asked  bool
	done   bool // it has answered
	answer *Entry
}

// open begins a round: needed are asked at once.
func (m *Machine) openRound(in Request, p phase, peers []identity.Node) *round {
	m.asked = m.now
	r := m.rounds.take()
	r.id, r.key, r.phase, r.deadline = in.ID, in.Key, p, m.now+min(longest, cmp.Or(in.Timeout, m.cfg.Timeout))
	if m.counts(in.Level) {
		r.own = 1
	}
	r.total, r.answered = len(peers)+r.own, r.own
	m.rounds.last++
	r.nr = m.rounds.last
	r.required = max(1, in.Level.Required(r.total))
	r.tooFew = r.required > r.total
	r.needed = min(r.required-r.own, len(peers))
	for _, n := range peers[:min(len(peers), r.needed+maxSecondaries)] {
		r.targets = append(r.targets, target{node: n})
	}
	r.due = m.now + (r.deadline-m.now)/5
	m.rounds.open[r.nr] = r
	heap.Push(&m.rounds.due, r)
	return r
}

// ask asks targets that were not asked yet, at least the first n.
func (m *Machine) ask(r *round, n int) {
	for i := range r.targets[:min(n, len(r.targets))] {
		if t := &r.targets[i]; !t.asked && !t.done {
			t.asked = true
			m.askOne(r, t.node)
		}
	}
}

// retime makes the second wave of a round be due in a fifth of what is left.
func (m *Machine) retime(r *round) {
	r.waved, r.due = false, m.now+(r.deadline-m.now)/5
	heap.Fix(&m.rounds.due, r.index)
}

func (m *Machine) askOne(r *round, to identity.Node) {
	switch {
	case r.phase == reading:
		m.send(to, false, Read{r.nr, r.key})
	case r.delta != nil && !r.waved:
		m.sendEncoded(to, false, KindDelta, r.delta)
	default:
		m.sendWhole(r, to)
	}
}

// sendWhole sends the whole value.
func (m *Machine) sendWhole(r *round, to identity.Node) {
	e := m.keys[r.key]
	if e == nil {
		return // it has expired
	}
	w, err := m.wire(e)
	if err != nil {
		m.note(Note{Kind: NoteRefused, Key: e.key, Err: err})
		return
	}
	m.send(to, false, Write{r.nr, w})
}

// roundDue begins the second wave of a round, or ends it.
func (m *Machine) roundDue(r *round) {
	if r.waved || r.due >= r.deadline {
		m.timeOut(r)
		return
	}
	m.count.SecondWaves++
	r.waved, r.due = true, r.deadline
	heap.Fix(&m.rounds.due, r.index)
	if r.delta != nil {
		for _, t := range r.targets {
			if t.asked && !t.done {
				m.sendWhole(r, t.node)
			}
		}
	}
	m.ask(r, len(r.targets))
}

// timeOut ends a round whose time is up. If its disk has not answered, this node has not taken part.
func (m *Machine) timeOut(r *round) {
	reply := Reply{Outcome: TimedOut, Err: r.refusal(), Silent: r.silent()}
	if r.storing {
		if r.answered >= r.required {
			reply = Reply{Outcome: StoreFailed, Err: fmt.Errorf("replication: the disk has not answered in time for %q", r.key)}
		}
		r.answered -= r.own
	}
	m.endRound(r, reply)
}

// target returns the target of a round that a message is from, nil if nothing
// waits for it.
func (m *Machine) target(nr uint64, from identity.Node) (*round, *target) {
	r := m.rounds.open[nr]
	if r == nil {
		m.count.Dropped[DropLate]++
		return nil, nil
	}
	for i := range r.targets {
		if t := &r.targets[i]; t.node == from && t.asked && !t.done {
			return r, t
		}
	}
	m.count.Dropped[DropLate]++
	return nil, nil
}

func (m *Machine) receiveAck(from identity.Node, a Ack) {
	r, t := m.target(a.Nr, from)
	switch {
	case r == nil:
		return
	case r.phase == reading:
		m.count.Dropped[DropLate]++
		return
	case a.Verdict == Gap:
		m.sendWhole(r, from)
		return
	case a.Verdict == Merged:
		t.done = true
		r.answered++
	default:
		t.done = true
		r.failed++
		r.verdict = a.Verdict
		m.ask(r, r.needed+r.failed) // somebody else
	}
	m.check(r)
}

// check ends a round if it can be said how.
func (m *Machine) check(r *round) {
	switch {
	case r.storing:
	case r.tooFew:
		m.finish(r, TooFew, nil)
	case r.answered < r.required:
		m.checkRefusals(r)
	case r.phase == reading:
		m.readDone(r)
	case r.phase == repairing:
		m.repaired(r)
	case r.phase == writing:
		m.finish(r, r.found, nil)
	}
}

// checkRefusals ends a round that too many have refused.
func (m *Machine) checkRefusals(r *round) {
	switch {
	case len(r.targets)-r.failed >= r.required-r.own:
	case r.verdict == StoreFault:
		m.finish(r, StoreFailed, r.refusal())
	default:
		m.finish(r, TimedOut, r.refusal())
	}
}

// refusal is what targets have said that have said no.
func (r *round) refusal() error {
	switch {
	case r.failed == 0:
		return nil
	case r.verdict == StoreFault:
		return fmt.Errorf("replication: %d other replicas could not store %q", r.failed, r.key)
	case r.verdict == Full:
		return fmt.Errorf("%w: %d other replicas have no room for %q", ErrFull, r.failed, r.key)
	}
	return fmt.Errorf("%w: %d other replicas have refused %q", ErrType, r.failed, r.key)
}

// silent returns the targets that were asked and have not answered.
func (r *round) silent() []identity.Node {
	var nodes []identity.Node
	for i := range r.targets {
		if t := &r.targets[i]; t.asked && !t.done {
			nodes = append(nodes, t.node)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	return nodes
}

// finish ends a round.
func (m *Machine) finish(r *round, o Outcome, err error) { m.endRound(r, Reply{Outcome: o, Err: err}) }

// endRound is finish with all that the reply says.
func (m *Machine) endRound(r *round, reply Reply) {
	reply.ID, reply.Answered, reply.Required, reply.Total = r.id, r.answered, r.required, r.total
	if reply.Outcome == Done {
		reply.Value = r.value
	}
	m.rounds.end(r)
	m.count.Outcomes[reply.Outcome]++
	m.reply(reply)
}

// admit refuses requests that can't be, and those that are too many.
func (m *Machine) admit(in Request) bool {
	err := CheckKey(in.Key)
	if err == nil {
		err = in.Level.validate()
	}
	switch {
	case err != nil:
		m.fail(in, err)
	case len(m.rounds.open)+len(m.stores.waiting)-m.stores.peers >= m.cfg.MaxRequests:
		m.count.Outcomes[Busy]++
		m.reply(Reply{ID: in.ID, Outcome: Busy})
		return false
	}
	return err == nil
}

func (m *Machine) fail(in Request, err error) {
	m.count.Outcomes[Failed]++
	m.reply(Reply{ID: in.ID, Outcome: Failed, Err: err})
}

// local answers a request that waits for no other node.
func (m *Machine) local(in Request, o Outcome, v crdt.Value) {
	m.count.Outcomes[o]++
	m.reply(Reply{ID: in.ID, Outcome: o, Value: v, Answered: 1, Required: 1, Total: m.total(in.Level)})
}

// roundHeap orders rounds by when something is due.
type roundHeap []*round

func (h roundHeap) Len() int { return len(h) }
func (h roundHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].nr < h[j].nr
}

func (h roundHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *roundHeap) Push(x any) {
	r := x.(*round) //nolint:errcheck,forcetypeassert // only rounds are pushed
	r.index = len(*h)
	*h = append(*h, r)
}

// Pop is part of heap.Interface.
func (h *roundHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}

var _ heap.Interface = (*roundHeap)(nil)
