// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/transport"
)

// queryTimeout is the default time limit of Statistics and CurrentRegions.
const queryTimeout = 3 * time.Second

// ErrNoCoordinator reports that the region is not registered with a coordinator, or that the
// coordinator does not reply, for example while it starts or moves.
var ErrNoCoordinator = errors.New("sharding: no coordinator")

// Statistics are the entity counts of all regions of a type. Each region reports its own state at a
// slightly different time.
type Statistics struct {
	// Regions are the regions that replied, sorted by node. Proxies are not included.
	Regions []RegionStatistics
	// Missing are the nodes whose regions did not reply in time, sorted.
	Missing []identity.Node
}

// RegionStatistics are the entity counts of a region.
type RegionStatistics struct {
	Node identity.Node
	// Shards are the hosted shards, sorted by number.
	Shards []ShardCount
}

// ShardCount is the number of running and starting entities of a shard.
type ShardCount struct {
	Shard    Shard `json:"shard"`
	Entities int   `json:"entities"`
	// PerSecond is the rate of commands in the last interval of the reports of the load, 1 to 10 s. It
	// is nil if the rate is unknown: nodes measure the load only for a strategy that reads it, such as
	// allocation.ByLoad. Only Admin.Shards sets it.
	PerSecond *float64 `json:"per_second,omitempty"`
}

// Entities returns the number of entities in all regions that replied.
func (s *Statistics) Entities() (n int) {
	for i := range s.Regions {
		n += s.Regions[i].Entities()
	}
	return n
}

// Entities returns the number of entities in the region.
func (r *RegionStatistics) Entities() (n int) {
	for i := range r.Shards {
		n += r.Shards[i].Entities
	}
	return n
}

// CurrentRegions returns the nodes whose regions are registered with the coordinator, sorted.
// Proxies are not included. It waits for at most 3 s. The error matches ErrNoCoordinator or
// ErrStopped, or is that of ctx.
func (r *Region[C]) CurrentRegions(ctx context.Context) ([]identity.Node, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errNoReply)
	defer cancel()
	nodes, err := r.shell.currentRegions(ctx)
	if err != nil {
		return nil, fmt.Errorf("sharding: regions of type %q: %w", r.shell.name, err)
	}
	return nodes, nil
}

// Statistics requests the entity counts of all regions. It waits for at most timeout; 0 means 3 s.
// Regions that do not reply in time are reported as missing. The error matches ErrNoCoordinator if
// the list of regions is not available, or ErrStopped, or is that of ctx.
func (r *Region[C]) Statistics(ctx context.Context, timeout time.Duration) (*Statistics, error) {
	s := r.shell
	limited, cancel := context.WithTimeoutCause(ctx, cmp.Or(max(timeout, 0), queryTimeout), errNoReply)
	defer cancel()
	nodes, err := s.currentRegions(limited)
	if err != nil {
		return nil, fmt.Errorf("sharding: statistics of type %q: %w", s.name, err)
	}
	found, failed := make([][]ShardCount, len(nodes)), make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			var b []byte
			if b, failed[i] = s.query(limited, n, queryCounts, ""); failed[i] == nil {
				found[i], failed[i] = decodeCounts(b)
			}
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sharding: statistics of type %q: %w", s.name, context.Cause(ctx))
	}
	out := &Statistics{}
	for i, n := range nodes {
		if failed[i] != nil {
			out.Missing = append(out.Missing, n)
			continue
		}
		out.Regions = append(out.Regions, RegionStatistics{n, found[i]})
	}
	return out, nil
}

// Presence returns whether an entity is in memory, without starting it. The home of the entity answers,
// or the coordinator if the shard has no home. An entity that the shard is about to start is Recovering,
// for example one that is remembered. The answer may be outdated when it arrives.
//
// Presence waits for at most 3 s. The error matches ErrInvalid for an invalid ID, ErrNoCoordinator if the
// home is unknown, or ErrStopped, or it is that of ctx or of the request to the home.
func (r *Region[C]) Presence(ctx context.Context, id string) (eventsourcing.Presence, error) {
	n, err := r.ShardOf(id)
	if err != nil {
		return eventsourcing.Absent, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errNoReply)
	defer cancel()
	p, err := r.shell.presence(ctx, n, id)
	if err != nil {
		return eventsourcing.Absent, fmt.Errorf("sharding: presence of %q of type %q: %w", id, r.shell.name, err)
	}
	return p, nil
}

func (s *shell) presence(ctx context.Context, n Shard, id string) (p eventsourcing.Presence, err error) {
	var home identity.Node
	if err = s.call(ctx, func() { home, _ = s.machine.Home(n) }); err != nil {
		return p, err
	}
	if !home.IsZero() { // it may be outdated
		var hosted bool
		if p, hosted, err = s.presenceAt(ctx, home, id); hosted || err != nil {
			return p, err
		}
	}
	nodes, err := s.queryCoordinator(ctx, queryHome, id)
	if err != nil || len(nodes) == 0 {
		return p, err
	}
	p, _, err = s.presenceAt(ctx, nodes[0], id) // without the shard, the home is about to start or stop it
	return p, err
}

// presenceAt queries a node that may host the shard of an entity.
func (s *shell) presenceAt(ctx context.Context, home identity.Node, id string) (p eventsourcing.Presence, hosted bool, err error) {
	b, err := s.query(ctx, home, queryPresence, id)
	if err != nil {
		return p, false, fmt.Errorf("query the home %v: %w", home, err)
	}
	return decodePresence(b)
}

// Stats are the figures of a region or a proxy on its node, for monitoring. Counters begin with the
// start of the region.
type Stats struct {
	// Type is the name of the entity type.
	Type string
	// Proxy reports that the node hosts no shards of the type. Registered reports whether the region
	// is registered with a coordinator.
	Proxy, Registered bool
	// Shards is the number of hosted shards. Entities counts their running and starting entities.
	Shards, Entities int
	// Prepared, Waiting, Queued, Unanswered, Dropped and OverBudget are those of State.
	Prepared, Waiting                       int
	Queued, Unanswered, Dropped, OverBudget uint64
	// HandedOff counts the shards that coordinators on this node have taken from their homes.
	// NotHandedOff counts the shards that stayed because a node did not respond in time.
	HandedOff, NotHandedOff uint64
	// Coordinator is the state of the coordinator of the type, nil unless the node runs it.
	Coordinator *AdminCoordinator
}

// StatsOf returns the figures of all regions and proxies of a node, sorted by type. Regions that end
// during the call are omitted. The error is that of ctx.
func StatsOf(ctx context.Context, node *cluster.Node) ([]Stats, error) {
	rt := routerOf(node)
	var all []Stats
	for _, name := range rt.types() {
		s := rt.find(name)
		if s == nil {
			continue
		}
		stats, err := s.stats(ctx)
		switch {
		case err == nil:
			all = append(all, stats)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("sharding: statistics of type %q on %v: %w", name, node.Self(), err)
		}
	}
	return all, nil
}

func (s *shell) stats(ctx context.Context) (st Stats, err error) {
	st = Stats{Type: s.name, Proxy: s.proxy}
	if err = s.call(ctx, func() {
		st.Registered, st.Waiting = s.machine.Registered(), s.machine.Waiting()
		st.HandedOff, st.NotHandedOff = s.handedOff, s.notHandedOff
		for _, c := range s.counts() {
			st.Shards++
			st.Entities += c.Entities
		}
		st.Coordinator = s.coordinatorState()
	}); err != nil {
		return Stats{}, err
	}
	if s.standbys != nil {
		_, st.Prepared = s.host().Followed()
	}
	st.Queued, st.Unanswered, st.Dropped, st.OverBudget = s.queuedTotal.Load(), s.unanswered.Load(), s.dropped.Load(), s.overBudget.Load()
	return st, nil
}

func (s *shell) currentRegions(ctx context.Context) ([]identity.Node, error) {
	nodes, err := s.queryCoordinator(ctx, queryRegions, "")
	slices.SortFunc(nodes, identity.Node.Compare)
	return nodes, err
}

// queryCoordinator sends a query to the coordinator, whose reply is a list of nodes.
func (s *shell) queryCoordinator(ctx context.Context, subject query, id string) ([]identity.Node, error) {
	var coordinator identity.Node
	if err := s.call(ctx, func() { coordinator, _ = s.machine.Coordinator() }); err != nil {
		return nil, err
	}
	if coordinator.IsZero() {
		return nil, ErrNoCoordinator
	}
	b, err := s.query(ctx, coordinator, subject, id)
	var nodes []identity.Node
	if err == nil {
		nodes, err = decodeNodes(b)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nodes, nil
	case cause != nil && !errors.Is(cause, errNoReply):
		return nil, cause
	}
	return nil, fmt.Errorf("%w on %v: %w", ErrNoCoordinator, coordinator, err)
}

// query sends a query to a node, which may be this one. id is the entity of the query, if it has one.
func (s *shell) query(ctx context.Context, to identity.Node, subject query, id string) (answer []byte, err error) {
	if to == s.node.Self() {
		if failed := s.call(ctx, func() { answer, err = s.answerQuery(subject, id) }); failed != nil {
			return nil, failed
		}
		return answer, err
	}
	b, err := s.node.Transport().Request(ctx, to, kindQuery, encodeQuery(subject, s.name, id))
	if err != nil {
		return nil, err
	}
	return decodeQueryReply(b)
}

// answerQuery returns the reply to a query. The loop calls it.
func (s *shell) answerQuery(subject query, id string) ([]byte, error) {
	switch subject {
	case queryRegions, queryHome:
		c := s.machine.LocalCoordinator()
		if c == nil || c.Term() == 0 {
			return nil, ErrNoCoordinator
		}
		state, _ := c.State()
		if subject == queryRegions {
			return encodeNodes(state.Regions()), nil
		}
		n, err := s.shardOf(id)
		if err != nil {
			return nil, err
		}
		if home, found := state.Home(n); found {
			return encodeNodes([]allocation.Region{{Node: home}}), nil
		}
		return encodeNodes(nil), nil
	case queryPresence:
		n, err := s.shardOf(id)
		if err != nil {
			return nil, err
		}
		return s.answerPresence(n, id), nil
	case queryCounts:
		if s.proxy {
			return nil, errors.New("proxy without shards")
		}
		return encodeCounts(s.counts()), nil
	}
	return nil, fmt.Errorf("unknown query %d", subject)
}

// answerPresence returns the encoded presence of an entity on this node. The loop calls it.
func (s *shell) answerPresence(n Shard, id string) []byte {
	if !slices.Contains(s.machine.Hosted(), n) {
		return []byte{wireVersion, notHosted}
	}
	p := eventsourcing.Absent
	if found, recovered := s.host().InMemory(id); recovered {
		p = eventsourcing.Running
	} else if found || s.machine.Starts(n, id) {
		p = eventsourcing.Recovering
	}
	return []byte{wireVersion, byte(p)}
}

// counts returns the entity counts of the hosted shards. The loop calls it.
func (s *shell) counts() []ShardCount {
	hosted := s.machine.Hosted()
	counts := make([]ShardCount, len(hosted))
	for i, n := range hosted {
		counts[i] = ShardCount{Shard: n, Entities: s.machine.Tracked(n)}
	}
	return counts
}

// maxPendingQueries is how many queries of other nodes may wait for a loop.
const maxPendingQueries = 256

func (rt *router) receiveQuery(_ context.Context, r *transport.Request) {
	reply := func(answer []byte, err error) {
		if failed := r.Reply(encodeQueryReply(answer, err)); failed != nil {
			rt.unsentReplies.Add(1)
		}
	}
	subject, name, id, err := decodeQuery(r.Payload)
	if err != nil {
		reply(nil, err)
		return
	}
	s := rt.find(name)
	if s == nil {
		reply(nil, fmt.Errorf("%w: no region of the type", ErrStopped))
		return
	}
	if s.pendingQueries.Add(1) > maxPendingQueries {
		s.pendingQueries.Add(-1)
		reply(nil, errors.New("too many queries wait"))
		return
	}
	if !s.post(func() {
		s.pendingQueries.Add(-1)
		reply(s.answerQuery(subject, id))
	}) {
		s.pendingQueries.Add(-1)
		reply(nil, ErrStopped)
	}
}

// query is the kind of a query. The numbers never change.
type query byte

const (
	queryRegions  query = 1 // the registered regions, to the coordinator
	queryCounts   query = 2 // the entity counts of a region
	queryPresence query = 3 // the presence of an entity on its home
	queryHome     query = 4 // the home of an entity, to the coordinator
)

// notHosted replies to queryPresence that the node does not host the shard. The other replies are an
// eventsourcing.Presence.
const notHosted byte = 255

// errNoReply is the cause of a context that ends because a reply is late.
var errNoReply = errors.New("sharding: no reply in time")

const (
	maxQueryReply = 16 << 20
	maxReason     = 512
)

// encodeQuery encodes a query about a type, or about an entity of it.
func encodeQuery(subject query, name, id string) []byte {
	b := append([]byte{wireVersion, byte(subject), byte(len(name))}, name...) //nolint:gosec // at most coordinator.MaxTypeLength
	return append(b, id...)
}

// decodeQuery decodes the result of encodeQuery. The error matches errMalformed.
func decodeQuery(b []byte) (subject query, name, id string, err error) {
	r := wire.NewReader(b, wireVersion, maxManifest+journal.MaxIDLength, errMalformed)
	subject = query(r.Byte("question"))
	name = string(r.Bytes(int(r.Byte("length")), "type"))
	id = string(r.Bytes(r.Left(), "entity ID"))
	return subject, name, id, r.End()
}

// decodePresence decodes the reply to queryPresence. The error matches errMalformed.
func decodePresence(b []byte) (p eventsourcing.Presence, hosted bool, err error) {
	r := wire.NewReader(b, wireVersion, maxQueryReply, errMalformed)
	v := r.Byte("presence")
	p, hosted = eventsourcing.Presence(v), v != notHosted
	if hosted && p > eventsourcing.Running {
		r.Fail("presence %d", v)
	}
	if err := r.End(); err != nil || !hosted {
		return eventsourcing.Absent, false, err
	}
	return p, true, nil
}

func encodeQueryReply(answer []byte, err error) []byte {
	if err != nil {
		text := err.Error()
		text = text[:min(len(text), maxReason)]
		return append(binary.AppendUvarint([]byte{wireVersion, 1}, uint64(len(text))), text...)
	}
	return append([]byte{wireVersion, 0}, answer...)
}

// decodeQueryReply decodes the result of encodeQueryReply. The error matches errMalformed, or is
// the error of the node.
func decodeQueryReply(b []byte) ([]byte, error) {
	r := wire.NewReader(b, wireVersion, maxQueryReply, errMalformed)
	failed := r.Byte("form")
	if err := r.Err(); err != nil {
		return nil, err
	}
	if failed == 0 {
		return b[2:], nil
	}
	text := r.Bytes(r.Count(maxReason, 1, "bytes of a reason"), "reason")
	if err := r.End(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("the node reports: %.*q", maxReason, text)
}

func encodeNodes(regions []allocation.Region) []byte {
	dst := binary.AppendUvarint([]byte{wireVersion}, uint64(len(regions)))
	for i := range regions {
		dst = wire.AppendNode(dst, regions[i].Node)
	}
	return dst
}

// decodeNodes decodes the result of encodeNodes. The error matches errMalformed.
func decodeNodes(b []byte) ([]identity.Node, error) {
	r := wire.NewReader(b, wireVersion, maxQueryReply, errMalformed)
	nodes := make([]identity.Node, r.Count(coordinator.MaxRegions, 10, "regions"))
	for i := range nodes {
		nodes[i] = r.Node()
	}
	return nodes, r.End()
}

// encodeCounts encodes the entity counts of shards, which are sorted: each shard is encoded as the
// difference to the previous one.
func encodeCounts(counts []ShardCount) []byte {
	dst := binary.AppendUvarint([]byte{wireVersion}, uint64(len(counts)))
	last := Shard(0)
	for _, c := range counts {
		dst = binary.AppendUvarint(dst, uint64(c.Shard-last))
		dst = binary.AppendUvarint(dst, uint64(max(0, c.Entities)))
		last = c.Shard
	}
	return dst
}

// decodeCounts decodes the result of encodeCounts. The error matches errMalformed.
func decodeCounts(b []byte) ([]ShardCount, error) {
	r := wire.NewReader(b, wireVersion, maxQueryReply, errMalformed)
	counts := make([]ShardCount, r.Count(coordinator.MaxShards, 2, "shards"))
	last := uint64(0)
	for i := range counts {
		n := last + r.Uint(coordinator.MaxShards-1, "shard")
		if n >= coordinator.MaxShards || i > 0 && n == last {
			r.Fail("shard %d follows %d", n, last)
		}
		counts[i] = ShardCount{Shard: Shard(n), Entities: int(r.Uint(1<<40, "entities"))} //nolint:gosec // checked
		last = n
	}
	return counts, r.End()
}
