// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
)

// needs are the parts of a picture that a page shows.
type needs uint8

const (
	needShards  needs = 1 << iota // the entities of each shard
	needGroups                    // singletons, groups and workers
	needTail                      // new events
	needJournal                   // the journal and its verification
)

// askTimeout limits each request to a node.
const askTimeout = 4 * time.Second

// picture is the state of all nodes at a time. It is not changed after look has returned it.
type picture struct {
	At  time.Time
	has needs
	// Cluster is the name of the cluster, empty without one.
	Cluster string
	// Reporter is the node that reported the members.
	Reporter  string
	Strategy  string
	Leader    string
	Converged bool
	// NoNode is the reason why the members are unknown.
	NoNode string
	// Alone is the process if there is no cluster.
	Alone *inspect.RuntimeView
	Nodes []*node
	Types []*entityType
	// Projections are those of all nodes, by name.
	Projections []*projection
	Groups      []sharding.GroupStatus
	// Singletons are those of all nodes, by name.
	Singletons []singleton
	// Tail are the last pages of new events, the oldest first.
	Tail []tailPage
	// TailProblem is the reason why new events are unknown.
	TailProblem string
	tailNext    journal.Offset
	tailCount   uint64
	// Catalog describes the journal, nil if it is unknown because of CatalogProblem. Verify is the
	// verification of the journal.
	Catalog        *inspect.Catalog
	CatalogProblem string
	Verify         *inspect.Verification
	VerifyProblem  string

	Problems []problem
	History  []sample
}

// node is a member of the cluster.
type node struct {
	cluster.SummaryMember

	Name string
	// Order is the position by age among the members, 1 for the oldest, 0 for those that are not Up.
	Order int
	// Leads reports that the node is the leader. RoleLeads are the roles of which it is the leader.
	Leads     bool
	RoleLeads []string
	// Err is the reason why the node has not reported its regions.
	Err     string
	Silent  bool
	Drained bool
	Leaving bool

	Shards, Entities, Waiting int
	Dropped                   uint64
	// Runtime is nil if the node has no agent or does not answer.
	Runtime     *inspect.RuntimeView
	projections []inspect.ProjectionView
}

// singleton is a singleton of the cluster.
type singleton struct {
	cluster.SingletonStatus

	// Coordinates is the entity type that the singleton coordinates, empty for other singletons.
	Coordinates string
	// Title is the name of the singleton, or a description of the coordinator of groups.
	Title string
}

// Notes are the nodes that take part in a hand-over.
func (s singleton) Notes() string {
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(s.States)) {
		if state := s.States[name]; state != "younger" && (state != "oldest" || name != s.Node) {
			notes = append(notes, name+": "+state)
		}
	}
	return strings.Join(notes, ", ")
}

// entityType is a sharded entity type.
type entityType struct {
	Name, Role string
	// Singleton is the name of the singleton that runs the coordinator.
	Singleton string
	Total     int
	// Coordinator is the name of the node of the coordinator, empty if there is none.
	Coordinator string
	State       *sharding.AdminCoordinator
	Hosts       []*host

	Shards, Entities, Waiting, Moving int
	Dropped                           uint64

	moves map[uint32]*sharding.AdminMove // set by colour
}

// Lost is the number of shards that have a home, but are hosted by no node.
func (t *entityType) Lost() int {
	if t.State == nil {
		return 0
	}
	return max(0, t.State.Placed-t.State.Moving-t.State.Starting-t.Shards)
}

// Moves are the shards in motion, the longest move first, as far as the coordinator lists them.
func (t *entityType) Moves() []sharding.AdminMove {
	if t.State == nil {
		return nil
	}
	return t.State.Moves
}

// host is a node that has a region or a proxy of a type.
type host struct {
	sharding.AdminRegion

	Name    string
	Leaving bool
	// Cells are the shards of the node.
	Cells []cell
	// PerSecond is the sum of the known rates of the shards, nil if none is known.
	PerSecond *float64
}

// cell is a shard on the heat map.
type cell struct {
	Shard    uint32
	Entities int
	// PerSecond is the rate of commands, nil if it is unknown.
	PerSecond *float64
	// Heat is the level of the colour by entities, 0 to 6. LoadHeat is that by load.
	Heat, LoadHeat int
	// Pinned is the node that keeps the shard.
	Pinned string
	// Move is nil unless the shard is in motion.
	Move *sharding.AdminMove
}

// problem is a sentence about something that is wrong.
type problem struct {
	// Level is "bad", "warn" or "note".
	Level string
	Text  string
	// Page is the page that shows the object.
	Page  string
	Since time.Time

	key string
	// patience is the time for which the condition must last.
	patience time.Duration
}

// sample is a point of the charts.
type sample struct {
	At       time.Time
	Entities int
	Waiting  int
	Shards   int
	Moving   int
	Rate     float64
	P99      time.Duration
	// Lags are the lags of the projections.
	Lags map[string]time.Duration
}

// memory keeps the beginning of problems, and the samples of the charts.
type memory struct {
	since   map[string]time.Time
	samples []sample
	tail    tail
}

const maxSamples = 300

func (m *memory) add(p *picture) {
	since := map[string]time.Time{}
	for i := range p.Problems {
		x := &p.Problems[i]
		if x.Since = m.since[x.key]; x.Since.IsZero() {
			x.Since = p.At
		}
		since[x.key] = x.Since
	}
	m.since = since
	p.Problems = slices.DeleteFunc(p.Problems, func(x problem) bool { return p.At.Sub(x.Since) < x.patience })
	now := sample{At: p.At, Entities: p.Entities(), Waiting: p.Waiting(), Shards: p.Shards(), Moving: p.Moving(), Rate: p.PerSecond(), P99: p.P99(), Lags: map[string]time.Duration{}}
	for _, x := range p.Projections {
		now.Lags[x.Name] = x.Lag
	}
	m.samples = append(m.samples, now)
	m.samples = m.samples[max(0, len(m.samples)-maxSamples):]
	p.History = slices.Clone(m.samples)
}

// look asks the nodes.
func (c *Console) look(ctx context.Context, n needs) *picture {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	p := &picture{At: time.Now(), has: n}
	c.lookAtMembers(ctx, p)
	var all sync.WaitGroup
	all.Go(func() {
		c.lookAtRegions(ctx, p)
		if n&needShards != 0 {
			c.lookAtShards(ctx, p)
		}
	})
	all.Go(func() { c.lookAtProcesses(ctx, p) })
	if n&needJournal != 0 {
		all.Go(func() { c.lookAtJournal(ctx, p) })
	}
	if n&needGroups != 0 {
		all.Go(func() { c.lookAtGroups(ctx, p) })
		all.Go(func() { c.lookAtSingletons(ctx, p) })
	}
	all.Wait()
	if p.Catalog != nil {
		p.countResident(p.Catalog.Types)
	}
	p.describeCoordinators()
	p.joinProjections()
	p.findProblems()
	return p
}

func nameOf(node string) string {
	name, _, _ := strings.Cut(node, "#")
	return name
}

func (c *Console) lookAtMembers(ctx context.Context, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := c.members.State(ctx, "")
	if err != nil {
		if p.Alone, _ = c.inspect.Runtime(ctx, ""); p.Alone == nil {
			p.NoNode = err.Error()
		}
		return
	}
	p.Cluster, p.Reporter, p.Strategy, p.Leader, p.Converged = s.Cluster, nameOf(s.Self), s.Strategy, nameOf(s.Leader), s.Converged
	for i := range s.Members {
		m := &node{SummaryMember: s.Members[i], Name: nameOf(s.Members[i].Node), Leads: s.Members[i].Node == s.Leader}
		m.Leaving = inspect.Leaves(m.Status)
		for role, leader := range s.RoleLeaders {
			if leader == m.Node {
				m.RoleLeads = append(m.RoleLeads, role)
			}
		}
		slices.Sort(m.RoleLeads)
		p.Nodes = append(p.Nodes, m)
	}
	byAge := slices.DeleteFunc(slices.Clone(p.Nodes), func(m *node) bool { return m.UpNumber == 0 })
	slices.SortFunc(byAge, func(a, b *node) int { return cmp.Compare(a.UpNumber, b.UpNumber) })
	for i, m := range byAge {
		m.Order = i + 1
	}
}

// answering are the nodes that can answer requests.
func (p *picture) answering() (all []*node) {
	for _, m := range p.Nodes {
		if inspect.Answers(m.Status) {
			all = append(all, m)
		}
	}
	return all
}

// lookAtProcesses adds the runtimes and the projections of the nodes.
func (c *Console) lookAtProcesses(ctx context.Context, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range p.answering() {
		all.Go(func() { m.Runtime, _ = c.inspect.Runtime(ctx, m.Name) })
		all.Go(func() {
			if found, err := c.inspect.Projections(ctx, m.Name); err == nil {
				m.projections = found.Projections
			}
		})
	}
	if p.Alone != nil {
		all.Go(func() {
			if found, err := c.inspect.Projections(ctx, ""); err == nil {
				p.join("", found.Projections)
			}
		})
	}
	all.Wait()
}

func (c *Console) lookAtJournal(ctx context.Context, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node := ""
	if all := p.answering(); len(all) > 0 {
		node = all[0].Name
	}
	var all sync.WaitGroup
	all.Go(func() {
		var err error
		if p.Catalog, err = c.inspect.Types(ctx, ""); err != nil {
			p.CatalogProblem = err.Error()
		}
	})
	var err error
	if p.Verify, err = c.inspect.Verification(ctx, node); err != nil {
		p.VerifyProblem = err.Error()
	}
	all.Wait()
}

// lookAtSingletons adds the singletons of the nodes that answer.
func (c *Console) lookAtSingletons(ctx context.Context, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var nodes []string
	for _, m := range p.answering() {
		nodes = append(nodes, m.Name)
	}
	found, _ := c.members.Singletons(ctx, nodes)
	for _, s := range found {
		p.Singletons = append(p.Singletons, singleton{SingletonStatus: s, Title: s.Name})
	}
}

// describeCoordinators describes the singletons that run the coordinators of types and groups.
func (p *picture) describeCoordinators() {
	for i := range p.Singletons {
		s := &p.Singletons[i]
		for _, t := range p.Types {
			if t.Singleton == s.Name {
				s.Coordinates = t.Name
			}
		}
		if slices.ContainsFunc(p.Groups, func(g sharding.GroupStatus) bool { return g.Singleton == s.Name }) {
			s.Title = "coordinator of groups"
		}
	}
}

func (c *Console) lookAtGroups(ctx context.Context, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	seen := map[string]bool{}
	for _, m := range p.answering() {
		for g, err := range c.shards.Groups(ctx, m.Name) {
			if err != nil {
				break
			}
			if key := g.Role + "\x00" + g.Name; !seen[key] {
				seen[key] = true
				p.Groups = append(p.Groups, g)
			}
		}
	}
}

// projection is a projection on all nodes.
type projection struct {
	Name string
	// State is that of the node with the worst one.
	State string
	// Lag is the longest lag, Unknown if a node does not know it.
	Lag      time.Duration
	Unknown  bool
	Rebuilds bool
	Paused   bool
	Failure  *inspect.FailureView
	Handled  uint64
	Nodes    []projectionNode
}

// projectionNode is a projection on one node, whose name is empty without a cluster.
type projectionNode struct {
	inspect.ProjectionView

	Node string
}

// join adds the projections of a node.
func (p *picture) join(node string, views []inspect.ProjectionView) {
	for i := range views {
		view := &views[i]
		at := slices.IndexFunc(p.Projections, func(x *projection) bool { return x.Name == view.Name })
		if at < 0 {
			at = len(p.Projections)
			p.Projections = append(p.Projections, &projection{Name: view.Name})
		}
		x := p.Projections[at]
		x.Nodes = append(x.Nodes, projectionNode{*view, node})
		x.Rebuilds, x.Paused, x.Handled = x.Rebuilds || view.Rebuilds, x.Paused || view.Paused, x.Handled+view.Handled
		if len(view.Workers) > 0 {
			x.Lag, x.Unknown = max(x.Lag, view.Lag), x.Unknown || !view.LagUnknownSince.IsZero()
		}
		failure := view.FirstFailure()
		if x.Failure = cmp.Or(x.Failure, failure); x.State == "" || failure != nil {
			x.State = view.State
		}
	}
}

func (p *picture) joinProjections() {
	for _, m := range p.Nodes {
		p.join(m.Name, m.projections)
	}
	slices.SortFunc(p.Projections, func(a, b *projection) int { return cmp.Compare(a.Name, b.Name) })
}

// lagLimit is the lag of a projection that is reported as a problem.
const lagLimit = 30 * time.Second

func (p *picture) node(name string) *node {
	for _, m := range p.Nodes {
		if m.Name == name && m.Status != cluster.Down.String() {
			return m
		}
	}
	return nil
}

func (p *picture) typ(name string) *entityType {
	for _, t := range p.Types {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (c *Console) lookAtRegions(ctx context.Context, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var names []string
	for _, m := range p.answering() {
		names = append(names, m.Name)
	}
	types := map[string]*entityType{}
	for _, answer := range c.shards.Regions(ctx, names) {
		m := p.node(answer.Name)
		if err := answer.Err; err != nil && !errors.Is(err, sharding.ErrNoRegion) {
			m.Err, m.Silent = err.Error(), true
		}
		for i := range answer.Regions {
			r := &answer.Regions[i]
			t := types[r.Type]
			if t == nil {
				t = &entityType{Name: r.Type, Role: r.Role, Singleton: r.Singleton, Total: r.Total}
				types[r.Type] = t
			}
			if s := r.CoordinatorState; s != nil && (t.State == nil || s.Term > t.State.Term) {
				t.Coordinator, t.State, t.Moving = answer.Name, s, max(s.Moving, len(s.Moves))
			}
			t.Shards, t.Entities, t.Waiting, t.Dropped = t.Shards+r.Shards, t.Entities+r.Entities, t.Waiting+r.Waiting, t.Dropped+r.Dropped
			t.Hosts = append(t.Hosts, &host{AdminRegion: *r, Name: answer.Name, Leaving: m.Leaving})
			m.Shards, m.Entities, m.Waiting, m.Dropped, m.Drained = m.Shards+r.Shards, m.Entities+r.Entities, m.Waiting+r.Waiting, m.Dropped+r.Dropped, m.Drained || r.Drained
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		p.Types = append(p.Types, types[name])
	}
}

// lookAtShards adds the shards of each node.
func (c *Console) lookAtShards(ctx context.Context, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, t := range p.Types {
		for _, h := range t.Hosts {
			if h.Shards == 0 {
				continue
			}
			all.Go(func() {
				for s, err := range c.shards.Shards(ctx, h.Name, t.Name) {
					if err != nil {
						return
					}
					h.Cells = append(h.Cells, cell{Shard: uint32(s.Shard), Entities: s.Entities, PerSecond: s.PerSecond})
				}
			})
		}
	}
	all.Wait()
	for _, t := range p.Types {
		t.colour()
	}
}

// maxHeat is the number of the warmest colour.
const maxHeat = 6

// colour completes the cells of a type. The colours are 0 for empty and idle shards, 1 to maxHeat in
// proportion to the fullest and to the busiest shard.
func (t *entityType) colour() {
	most, busiest := 1, 0.0
	pins := map[uint32]string{}
	t.moves = map[uint32]*sharding.AdminMove{}
	if t.State != nil {
		for _, pin := range t.State.Pins {
			pins[uint32(pin.Shard)] = pin.Node
		}
		for i := range t.State.Moves {
			t.moves[uint32(t.State.Moves[i].Shard)] = &t.State.Moves[i]
		}
	}
	for _, h := range t.Hosts {
		for i := range h.Cells {
			x := &h.Cells[i]
			if most = max(most, x.Entities); x.PerSecond == nil {
				continue
			}
			busiest = max(busiest, *x.PerSecond)
			if h.PerSecond == nil {
				h.PerSecond = new(float64)
			}
			*h.PerSecond += *x.PerSecond
		}
	}
	for _, h := range t.Hosts {
		for i := range h.Cells {
			x := &h.Cells[i]
			x.Pinned, x.Move = pins[x.Shard], t.moves[x.Shard]
			if x.Entities > 0 {
				x.Heat = 1 + x.Entities*(maxHeat-1)/most
			}
			if x.PerSecond != nil && *x.PerSecond > 0 {
				x.LoadHeat = 1 + int(*x.PerSecond*(maxHeat-1)/busiest)
			}
		}
	}
}

func (p *picture) report(level, page, key, format string, args ...any) {
	p.Problems = append(p.Problems, problem{Level: level, Page: page, Text: fmt.Sprintf(format, args...), key: key})
}

// findProblems lists the problems, the worst first.
func (p *picture) findProblems() {
	if p.NoNode != "" {
		p.report("bad", "nodes", "no node", "No node answers: %s", p.NoNode)
		return
	}
	for _, x := range p.Projections {
		switch {
		case x.Failure != nil && x.Failure.ID != "":
			p.report("bad", "projections", "failure "+x.Name, "Projection %s fails on event %d of %s: %s", x.Name, x.Failure.Nr, x.Failure.ID, causeOf(x.Failure))
		case x.Failure != nil:
			p.report("bad", "projections", "failure "+x.Name, "Projection %s fails: %s", x.Name, x.Failure.Text)
		case x.Paused:
			p.report("warn", "projections", "paused "+x.Name, "Projection %s is paused", x.Name)
		case x.Lag > lagLimit && !x.Unknown:
			p.report("warn", "projections", "lag "+x.Name, "Projection %s lags by %s", x.Name, lasting(x.Lag))
		}
	}
	for name, r := range p.runtimes() {
		at := ""
		if name != "" {
			at = " on node " + name
		}
		if r.JournalBreakerOpen {
			p.report("bad", "nodes", "journal "+name, "The journal does not work%s: its circuit breaker is open", at)
		}
		if r.SnapshotBreakerOpen {
			p.report("bad", "nodes", "snapshots "+name, "The snapshot store does not work%s: its circuit breaker is open", at)
		}
	}
	if p.Alone != nil {
		p.sortProblems()
		return
	}
	if p.Leader == "" {
		p.report("bad", "nodes", "leader", "The cluster has no leader")
	}
	for _, m := range p.Nodes {
		switch {
		case m.Status == cluster.Down.String():
			p.report("bad", "nodes", "down "+m.Node, "Node %s is down", m.Name)
		case m.Unreachable:
			p.report("bad", "nodes", "unreachable "+m.Node, "Node %s is unreachable to %s", m.Name, names(m.UnreachableTo))
		case m.Silent && !m.Leaving:
			p.report("bad", "nodes", "silent "+m.Node, "Node %s does not answer: %s", m.Name, m.Err)
		case m.Leaving:
			p.report("note", "nodes", "leaving "+m.Node, "Node %s is %s", m.Name, m.Status)
		case m.Status != cluster.Up.String():
			p.report("note", "nodes", "status "+m.Node, "Node %s is %s", m.Name, m.Status)
		}
	}
	for _, t := range p.Types {
		if t.State == nil {
			p.report("bad", "shards", "coordinator "+t.Name, "Type %s has no coordinator", t.Name)
		}
		if n := t.Lost(); n > 0 {
			p.report("bad", "shards", "lost "+t.Name, "%s of type %s %s no home", count(n, "shard"), t.Name, verb(n, "has", "have"))
		}
		if t.Moving > 0 {
			p.report("note", "shards", "moving "+t.Name, "%s of type %s %s", count(t.Moving, "shard"), t.Name, verb(t.Moving, "moves", "move"))
		}
		for _, h := range t.Hosts {
			if h.Mismatch != "" {
				p.report("bad", "shards", "mismatch "+t.Name+h.Name, "Node %s is refused for type %s: %s", h.Name, t.Name, h.Mismatch)
			}
			if h.Waiting > 0 {
				p.report("warn", "shards", "waiting "+t.Name+h.Name, "%s of type %s %s on node %s", count(h.Waiting, "command"), t.Name, verb(h.Waiting, "waits", "wait"), h.Name)
				p.Problems[len(p.Problems)-1].patience = 3 * time.Second // a command that starts an entity waits briefly
			}
			if h.Drained && !h.Leaving {
				p.report("note", "shards", "drained "+t.Name+h.Name, "Node %s is drained for type %s", h.Name, t.Name)
			}
		}
	}
	if !p.Converged {
		p.report("note", "nodes", "converged", "The members do not all have the same state yet")
		p.Problems[len(p.Problems)-1].patience = 3 * time.Second
	}
	p.sortProblems()
}

func (p *picture) sortProblems() {
	rank := map[string]int{"bad": 0, "warn": 1, "note": 2}
	slices.SortStableFunc(p.Problems, func(a, b problem) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
}

// causeOf returns the text of a failure without the event, which the text begins with.
func causeOf(f *inspect.FailureView) string {
	if _, cause, ok := strings.Cut(f.Text, fmt.Sprintf("event %d of %q (%s): ", f.Nr, f.ID, f.Manifest)); ok {
		return cause
	}
	return f.Text
}

// runtimes yields the processes with the names of their nodes, empty without a cluster.
func (p *picture) runtimes() iter.Seq2[string, *inspect.RuntimeView] {
	return func(yield func(string, *inspect.RuntimeView) bool) {
		if p.Alone != nil && !yield("", p.Alone) {
			return
		}
		for _, m := range p.Nodes {
			if m.Runtime != nil && !yield(m.Name, m.Runtime) {
				return
			}
		}
	}
}

// countResident sets the number of entities in memory to the sum over all processes. The node that
// lists the types counts only those in its own memory, which remain if no process reports its runtime.
func (p *picture) countResident(types []inspect.TypeView) {
	var resident map[string]int
	for _, r := range p.runtimes() {
		if resident == nil {
			resident = map[string]int{}
		}
		for _, f := range r.Entities {
			resident[f.Type] += f.Resident
		}
	}
	if resident == nil {
		return
	}
	for i := range types {
		types[i].Resident = resident[types[i].Name]
	}
}

// PerSecond is the rate of commands. Loaded reports that a node measures it.
func (p *picture) PerSecond() (rate float64) {
	for _, r := range p.runtimes() {
		if r.Load != nil {
			rate += r.Load.PerSecond
		}
	}
	return rate
}

// Loaded reports that at least one process measures its load.
func (p *picture) Loaded() bool {
	for _, r := range p.runtimes() {
		if r.Load != nil {
			return true
		}
	}
	return false
}

// P99 is the longest of the latencies of the nodes.
func (p *picture) P99() (longest time.Duration) {
	for _, r := range p.runtimes() {
		if r.Load != nil {
			longest = max(longest, r.Load.P99)
		}
	}
	return longest
}

// WorstLag is the longest lag of a projection.
func (p *picture) WorstLag() (longest time.Duration) {
	for _, x := range p.Projections {
		longest = max(longest, x.Lag)
	}
	return longest
}

// BreakersOpen is the number of open circuit breakers.
func (p *picture) BreakersOpen() (n int) {
	for _, r := range p.runtimes() {
		for _, open := range []bool{r.JournalBreakerOpen, r.SnapshotBreakerOpen} {
			if open {
				n++
			}
		}
	}
	return n
}

func names(nodes []string) string {
	var all []string
	for _, n := range nodes {
		all = append(all, nameOf(n))
	}
	return strings.Join(all, ", ")
}

func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// Level is the level of the worst problem, "ok" if there is none that is worse than a note.
func (p *picture) Level() string {
	if len(p.Problems) == 0 || p.Problems[0].Level == "note" {
		return "ok"
	}
	return p.Problems[0].Level
}

// Entities is the number of running entities.
func (p *picture) Entities() (n int) {
	for _, t := range p.Types {
		n += t.Entities
	}
	if p.Alone != nil {
		for _, f := range p.Alone.Entities {
			n += f.Resident
		}
	}
	return n
}

// Shards is the number of hosted shards.
func (p *picture) Shards() (n int) {
	for _, t := range p.Types {
		n += t.Shards
	}
	return n
}

// TotalShards is the number of shards of all types.
func (p *picture) TotalShards() (n int) {
	for _, t := range p.Types {
		n += t.Total
	}
	return n
}

// Moving is the number of shards in a hand-off.
func (p *picture) Moving() (n int) {
	for _, t := range p.Types {
		n += t.Moving
	}
	return n
}

// Waiting is the number of commands that wait for a shard, in mailboxes and in stashes.
func (p *picture) Waiting() (n int) {
	for _, t := range p.Types {
		n += t.Waiting
	}
	for _, r := range p.runtimes() {
		for _, f := range r.Entities {
			n += f.Inbox + f.Stash
		}
	}
	return n
}

// Dropped is the number of commands that were not delivered since the start of the processes.
func (p *picture) Dropped() (n uint64) {
	for _, t := range p.Types {
		n += t.Dropped
	}
	for _, r := range p.runtimes() {
		if r.Load != nil {
			n += r.Load.Dropped
		}
	}
	return n
}

// Up is the number of members that are Up and reachable.
func (p *picture) Up() (n int) {
	for _, m := range p.Nodes {
		if m.Status == cluster.Up.String() && !m.Unreachable {
			n++
		}
	}
	return n
}
