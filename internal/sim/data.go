// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/sim/env"
)

// data is the simulated replicated data of a cluster. It also keeps an external record for the
// checks: the requests, the answers, and the data that each replicator holds.
type data struct {
	workload

	plan   DataPlan
	all    []*replicator // all replicators that ever existed
	byNode map[identity.Node]*replicator
	disks  map[string]*disk // by name of the node
	views  map[string]*view

	keys     []*datum // all keys that ever existed
	byKey    map[string]*datum
	current  map[kind]*datum // the key in use for each kind
	requests uint64          // number of the last request
	acks     uint64          // number of the last acknowledgement or answer
	serial   int             // source of unique names
	held     []*holders      // sets of replicators that held the same data at some time
	rounds   int
	pruned   map[identity.Node]bool // removed nodes whose history was taken over
}

func newData(c *cluster, seed uint64, plan DataPlan) *data {
	return &data{
		workload: newWorkload(c, seed, 0xda7a), plan: plan, byNode: map[identity.Node]*replicator{}, disks: map[string]*disk{}, views: map[string]*view{},
		byKey: map[string]*datum{}, current: map[kind]*datum{}, pruned: map[identity.Node]bool{},
	}
}

func (d *data) begin() {
	d.later(d.plan.Pace, d.work)
	d.later(4*time.Second, d.recordHolders)
	d.later(20*time.Second, d.diskTrouble)
}

// view is the set of nodes that count in a quorum, in the view of one node.
type view struct {
	nodes []identity.Node // sorted
	gone  map[*view]int   // number of nodes of this view that are missing in another view
}

func (v *view) missingIn(other *view) int {
	if _, known := v.gone[other]; !known {
		v.gone[other] = len(filter(v.nodes, func(n identity.Node) bool { return !other.has(n) }))
	}
	return v.gone[other]
}

// view returns the nodes that count for a level, according to the membership of the node.
func (d *data) view(r *replicator, l replication.Level) *view {
	self := r.h.p.Node()
	nodes := []identity.Node{self}
	for _, m := range r.h.m.Gossip().Members() {
		switch {
		case m.Node == self && (m.Status == identity.Joining || m.Status == identity.WeaklyUp) && (l.Kind == replication.Majority || l.Kind == replication.MajorityPlus):
			nodes = slices.DeleteFunc(nodes, func(n identity.Node) bool { return n == self }) // a Joining or WeaklyUp node does not count itself in a majority
		case m.Node == self:
		case m.Status == identity.Exiting && (l.Kind == replication.All || l.Kind == replication.MajorityPlus):
		case m.Status == identity.Up, m.Status == identity.Leaving, m.Status == identity.Exiting:
			nodes = append(nodes, m.Node)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	name := fmt.Sprint(nodes)
	if d.views[name] == nil {
		d.views[name] = &view{nodes: nodes, gone: map[*view]int{}}
	}
	return d.views[name]
}

// needed returns how many of n replicas a level requires. It is computed independently of the
// protocol.
func needed(l replication.Level, n int) int {
	majority := n/2 + 1
	switch l.Kind {
	case replication.Count:
		return l.N
	case replication.All:
		return n
	case replication.MajorityPlus:
		majority += l.N
	case replication.Local:
		return 1
	case replication.Majority:
	}
	return min(max(majority, l.MinCap), n)
}

// living returns the replicators of living nodes that have loaded their disks.
func (d *data) living() []*replicator {
	return filter(d.all, (*replicator).serves)
}

// holders returns the living replicators that hold data: those of members, and those that have
// received requests. Without members the result is empty: a node that never joined may hold data
// from the disk of an earlier process of its name, and nodes that form a cluster without it may
// prune that data.
func (d *data) holders() []*replicator {
	member := func(r *replicator) bool { return r.h.m.Member() }
	all := slices.DeleteFunc(d.living(), func(r *replicator) bool { return !member(r) && !r.wrote })
	if !slices.ContainsFunc(all, member) {
		return nil
	}
	return all
}

// DataPlan is the configuration of replicated data in a simulation.
type DataPlan struct {
	// Config is the common part of the configurations of all replicators.
	Config replication.Config
	// Pace is the approximate time between two actions of a client.
	Pace time.Duration
	// Durable reports that some keys are stored on disk.
	Durable bool
	// Pruned reports that removed nodes are pruned soon. If it is false, nothing is pruned during
	// the simulation, and all data on disks must be present at the end.
	Pruned bool
	// DurablePruned extends Pruned to durable keys.
	DurablePruned bool
	// Forgotten reports that markers of pruning expire soon and that clocks do not jump.
	Forgotten bool
	// Large reports that some values exceed the maximum size of a message.
	Large bool
}

// NewDataPlan returns the plan of a seed.
func NewDataPlan(seed uint64, plan Plan) DataPlan {
	r := rand.New(rand.NewPCG(seed, 0xda7a91a7)) //nolint:gosec // must be repeatable
	p := DataPlan{Pace: 600 * time.Millisecond, Durable: r.IntN(4) > 0, Pruned: r.IntN(5) > 1}
	c := &p.Config
	// must be reproducible
	c.PruneInterval, c.MarkerTTL, c.DurableMarkerTTL = -1, 1_000*time.Hour, 1_000*time.Hour
	if p.Pruned {
		c.PruneInterval, c.PruneAfter = 4*time.Second, 9*time.Second
		if p.DurablePruned = r.IntN(3) == 0; p.DurablePruned {
			c.DurablePruneAfter = c.PruneAfter
		}
		if p.Forgotten = r.IntN(8) == 0; p.Forgotten {
			c.MarkerTTL = forgottenAfter
		}
	}
	if p.Durable {
		c.Durable = []string{"durable/*"}
	}
	if r.IntN(3) == 0 {
		c.Expire = map[string]time.Duration{"lease/*": 15 * time.Second}
	}
	switch r.IntN(10) {
	case 0:
		c.DisableDeltas = true
	case 1, 2:
		c.MaxDeltaOps = 2 + r.IntN(8)
	case 3:
		c.MaxLog = 2 + r.IntN(6)
	case 4:
		c.GossipInterval, c.NotifyInterval, c.DeltaInterval = time.Second, 200*time.Millisecond, 100*time.Millisecond
	}
	if len(plan.Names) > 10 && r.IntN(2) == 0 { // large clusters send changes to some nodes at a time; a small log then drops some changes
		c.MaxLog = 2 + r.IntN(6)
	}
	if r.IntN(40) == 0 {
		p.Large = true
		c.MaxEntry, c.MaxMessage = 60<<10, 64<<10
	}
	return p
}

func (p DataPlan) prunes(k *datum) bool { return p.Pruned && (!k.durable || p.DurablePruned) }

// forgottenAfter exceeds the time that a living member can be without contact to the others.
const forgottenAfter = 200 * time.Second

// String describes the plan.
func (p DataPlan) String() string {
	return fmt.Sprintf("durable %t, pruned %t, durable ones %t, forgotten %t, large %t, deltas %t", p.Durable, p.Pruned, p.DurablePruned, p.Forgotten, p.Large, !p.Config.DisableDeltas)
}

func (d *data) count(r *replicator) {
	d.mustHappen()
	n, c := r.m.Counters(), d.c.coverage
	rows(c, "data message", replication.KindWrite, replication.Kinds-1, n.Received[:])
	rows(c, "data dropped", 0, replication.Drops-1, n.Dropped[:])
	for row, n := range map[string]uint64{
		"compared": n.Compared, "equal": n.Equal, "delta applied": n.DeltasApplied, "delta known": n.DeltasKnown, "delta behind a gap": n.DeltasGap,
		"delta as a whole value": n.DeltasAsStates, "delta dropped": n.DeltasDropped, "merged": n.Merged, "known": n.Known, "second wave": n.SecondWaves,
		"read repaired here": n.Repaired, "pruning begun": n.Initiated, "pruned": n.Pruned, "marker forgotten": n.Cleared, "expired": n.Expired,
	} {
		c.hit("data", row, n)
	}
}

func (d *data) mustHappen() {
	for table, rows := range map[string][]string{
		"read":    {"done", "not found", "deleted", "timed out", "too few replicas", "stopped"},
		"update":  {"done", "deleted", "timed out", "too few replicas", "store failed", "stopped"},
		"delete":  {"done", "deleted", "timed out"},
		"event":   {"changed", "deleted", "expired"},
		"disk":    {"loaded", "loaded records", "failed", "written", "written at the end", "in use", "store failed"},
		"promise": {"members fixed", "members joined", "members left", "members joined and left"},
		"checked": {
			"acknowledged writes", "acknowledged writes on disk", "acknowledged writes of nodes that are gone", "acknowledged durable writes of nodes that are gone",
			"own writes", "reads that have to see writes", "reads of registers", "repaired reads", "writes when a node is pruned",
			"elements added and removed by two", "sums that are known", "converges", "prunes", "records",
		},
		"data": {"asked while loading", "message for an earlier incarnation", "lost with its last replica", "all holders of a write have ended", "pruned while the holder was away"},
	} {
		d.c.coverage.expect(table, rows...)
	}
}

const (
	kindData   link.Kind = 100
	maxPayload           = 1<<20 - 1<<10
)

// replicator is the replicator of a host: package ddata without goroutines.
type replicator struct {
	d    *data
	h    *host
	m    *replication.Machine
	self *crdt.Self

	disk    *disk
	backlog replication.Backlog
	writing *replication.Writing
	loaded  bool
	ended   bool
	wrote   bool
	alarm   env.Alarm // calls Tick
	delays  delays

	requests      map[uint64]*request
	asked         []replication.Input           // requests that the node has not received yet
	collects      bool                          // requests are collected instead of delivered
	held          map[string]replication.Change // the values for reads outside of the machine
	ran           []*write                      // changes of this step
	counts        map[string]uint64             // observed counts by key
	subscriptions []*subscription
}

func (d *data) replicate(h *host) *replicator {
	self := must(crdt.NewSelf(h.p.Node()))
	r := &replicator{
		d: d, h: h, self: self, disk: d.disk(h.p.Node().Name), requests: map[uint64]*request{},
		held: map[string]replication.Change{}, counts: map[string]uint64{},
	}
	cfg := d.plan.Config
	cfg.Name, cfg.Self, cfg.Started, cfg.MaxMessage = replicatorName, self, h.p.Wall(), cmp.Or(cfg.MaxMessage, maxPayload-replication.Overhead)
	if d.plan.Forgotten { // markers expire by wall-clock time, so all wall clocks must agree
		cfg.Started = cfg.Started.Add(-h.p.Place().Wall)
	}
	cfg.Rand = rand.New(rand.NewPCG(d.rand.Uint64(), h.p.Node().UID)) //nolint:gosec // must be repeatable
	r.m = must(replication.New(cfg))
	d.all = append(d.all, r)
	d.byNode[h.p.Node()] = r
	if d.plan.Durable {
		r.after(0, r.open)
	} else {
		r.loaded = true
	}
	r.subscribe()
	r.wakeUp()
	if !d.plan.Forgotten {
		r.setClock()
	}
	return r
}

// serves reports whether the replicator answers requests and is not about to end.
func (r *replicator) serves() bool { return !r.ended && r.loaded && r.h.alive() }

// after calls f on the node's clock, unless the replicator has ended.
func (r *replicator) after(t time.Duration, f func()) {
	r.h.p.After(t, func() {
		if !r.ended {
			f()
		}
	})
}

func (r *replicator) value(key string) (v crdt.Value, deleted, found bool) {
	return r.m.Value(key)
}

func (r *replicator) setClock() {
	r.after(r.d.between(5*time.Second, 15*time.Second), func() {
		r.input(replication.SetClock{Time: r.h.p.Wall().Add(r.h.p.Now())})
		r.setClock()
	})
}

func (r *replicator) members(events []membership.Event) {
	if r.ended || !slices.ContainsFunc(events, changesMembers) || !r.h.m.Member() {
		return
	}
	var in replication.Members
	in.All, in.Unreachable = r.h.members()
	r.step(replication.Batch{Members: &in})
}

func changesMembers(e membership.Event) bool {
	switch e.Kind {
	case membership.ShuttingDown, membership.LeaderChanged, membership.RoleLeaderChanged, membership.TombstonesChanged, membership.SeenChanged,
		membership.ReachabilityChanged:
		return false
	default:
		return true
	}
}

func (r *replicator) received(m env.Message) {
	if m.To != r.h.p.Node() {
		r.d.hit("data", "message for an earlier incarnation")
	} else if !r.h.cut[m.From] && !r.ended {
		r.delays.deliver(r.h, r.d.rand, func() { r.step(replication.Batch{Packets: []replication.Packet{{From: m.From, Payload: m.Data}}}) })
	}
}

func (r *replicator) step(b replication.Batch) {
	if !r.ended {
		r.carry(r.m.Step(r.h.p.Now(), b))
	}
}

func (r *replicator) input(in ...replication.Input) { r.step(replication.Batch{Inputs: in}) }

func (r *replicator) carry(e replication.Effects) {
	r.notes(e.Notes)
	r.backlog.Add(e.Store)
	for _, s := range e.Send {
		lane := link.Data
		if s.Bulk {
			lane = link.Bulk
		}
		if !r.h.cut[s.To] {
			r.h.p.Send(s.To, lane, kindData, s.Payload)
		}
	}
	for _, v := range e.Values {
		r.changed(v)
	}
	readsItsWrites(r)
	for i := range e.Replies {
		r.replied(&e.Replies[i])
	}
	for i := range e.Events {
		r.event(&e.Events[i])
	}
	if e.Stopped && !r.ended {
		r.end()
	}
	r.m.Reuse(e) // as the shell does, so that a reference to the effects after this step is detected
	r.flush()
	r.wakeUp()
}

func (r *replicator) wakeUp() {
	r.alarm.Set(r.m.Next, r.h.p.Now, r.after, func() { r.carry(r.m.Tick(r.h.p.Now())) })
}

func (r *replicator) stop() {
	r.input(replication.Stop{})
	for id := range r.requests {
		r.h.violate("requests-are-answered", "the replicator has stopped, request %d is open", id)
	}
}

// end records the end of the replicator and the data that only this replicator held.
func (r *replicator) end() {
	if r.ended {
		return
	}
	r.ended = true
	if r.writing != nil && r.d.rand.IntN(2) == 0 { // at random, the disk stores or loses a running write
		r.d.hit("disk", "written at the end")
		r.disk.write(*r.writing)
	}
	r.writing = nil
	r.d.lost(r)
}

// replicatorName is the name of all replicators.
const replicatorName = "sim"

func (r *replicator) notes(notes []replication.Note) {
	for _, n := range notes {
		r.d.hit("data note", n.Kind.String())
		switch n.Kind {
		case replication.NoteMalformed, replication.NoteRefused, replication.NoteTooLarge, replication.NoteFull, replication.NoteLoad:
			if r.h.c.forging {
				continue
			}
			r.h.violate("data-is-sound", "%v of %v, %q: %v", n.Kind, n.Node, n.Key, n.Err)
		case replication.NotePruned:
			r.d.w.Logf("%v: %v is pruned from %d keys", r.h.p.Node(), n.Node, n.N)
			prunedForAll(r, n.Node)
		case replication.NoteStore, replication.NotePulling, replication.NotePulled, replication.NotePruning, replication.NoteRemoved, replication.NoteLarge:
		}
	}
}

// knows reports whether a node is a holder of the data in the view of the replicator.
func (r *replicator) knows(n identity.Node) bool {
	m := r.h.m.Gossip().Member(n)
	return m != nil && m.Status != identity.Joining && m.Status != identity.Down
}

var errDisk = errors.New("the disk has failed")

// disk is the disk of a computer. Written data survives the processes.
type disk struct {
	trouble

	d        *data
	name     string
	records  map[string][]byte
	owner    *replicator   // the replicator that has opened the disk
	repaired time.Duration // time of the last repair
	failed   bool          // failed at least once; writes of other nodes are not retried

	decoded map[string]decoded
}

type decoded struct {
	data    []byte
	value   crdt.Value
	deleted bool
}

func (d *data) disk(name string) *disk {
	k := d.disks[name]
	if k == nil {
		k = &disk{d: d, name: name, records: map[string][]byte{}, decoded: map[string]decoded{}}
		d.disks[name] = k
	}
	return k
}

func (k *disk) value(key string) (v crdt.Value, deleted, found bool) {
	b, found := k.records[key]
	if !found {
		return crdt.Value{}, false, false
	}
	if c, known := k.decoded[key]; known && &c.data[0] == &b[0] {
		return c.value, c.deleted, true
	}
	rec, err := replication.DecodeRecord(b)
	if err == nil && !rec.Deleted {
		v, err = (*crdt.Types)(nil).Decode(rec.Value)
	}
	if err != nil {
		k.d.c.violate("records-can-be-read", k.owner.h.p.Node(), "%q: %v", key, err)
		return crdt.Value{}, false, false
	}
	k.decoded[key] = decoded{b, v, rec.Deleted}
	return v, rec.Deleted, true
}

// open opens the disk once its former owner has ended, and loads its records.
func (r *replicator) open() {
	if k := r.disk; k.owner != nil && k.owner != r && !k.owner.h.p.Dead() {
		r.d.hit("disk", "in use")
		r.after(time.Second, r.open)
		return
	}
	r.disk.owner = r
	r.after(r.d.between(time.Millisecond, 1500*time.Millisecond), func() {
		var in []replication.Input
		for _, key := range slices.Sorted(maps.Keys(r.disk.records)) {
			in = append(in, replication.Load{Key: key, Data: r.disk.records[key]})
		}
		r.d.hit("disk", "loaded")
		if len(in) > 0 {
			r.d.hit("disk", "loaded records")
		}
		r.loaded = true
		r.input(append(in, replication.Loaded{})...)
	})
}

func (r *replicator) flush() {
	if r.writing != nil || r.backlog.Len() == 0 {
		return
	}
	w := r.backlog.Take(100, 1<<20)
	r.writing = &w
	took := r.d.between(100*time.Microsecond, 10*time.Millisecond)
	if r.disk.slow {
		took = r.d.between(10*time.Millisecond, 4*time.Second)
	}
	r.after(took, func() {
		r.writing = nil
		in := replication.Stored{Nrs: w.Nrs}
		if r.disk.failing {
			r.d.hit("disk", "failed")
			in.Err = errDisk
			if r.d.rand.IntN(2) == 0 { // random outcome
				r.disk.write(w)
			}
			r.disk.failed = true
		} else {
			r.d.hit("disk", "written")
			r.disk.write(w)
		}
		r.input(in)
		r.flush()
	})
}

func (k *disk) write(w replication.Writing) {
	for _, rec := range w.Records {
		if rec.Data == nil {
			delete(k.records, rec.Key)
		} else {
			k.records[rec.Key] = rec.Data
		}
	}
}

func (d *data) diskTrouble() {
	living := d.living()
	if !d.plan.Durable || len(living) == 0 {
		return
	}
	if k := living[d.rand.IntN(len(living))].disk; k.trouble == (trouble{}) {
		k.repaired = d.w.Now() + k.begin(&d.workload, "the disk of "+k.name)
	}
}
