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

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/transport"
)

// queryTimeout is how long Statistics and CurrentRegions wait at most if they are not told otherwise.
const queryTimeout = 3 * time.Second

// ErrNoCoordinator says that no coordinator is known, or that it does not answer: it is being started, or moved.
var ErrNoCoordinator = errors.New("sharding: there is no coordinator")

// Statistics are how many entities the regions of a type have, for tests and for people: it is as each region saw it when it was asked.
type Statistics struct {
	// Regions are those that have answered, sorted by node. Proxies are none.
	Regions []RegionStatistics
	// Missing are the nodes with a region that has not answered in time, sorted.
	Missing []identity.Node
}

// RegionStatistics are those of a region.
type RegionStatistics struct {
	Node identity.Node
	// Shards are those that it hosts, sorted by number.
	Shards []ShardCount
}

// ShardCount says how many entities a shard has: those that run, and those that will.
type ShardCount struct {
	Shard    Shard
	Entities int
}

// Entities returns how many there are in all regions that have answered.
func (s *Statistics) Entities() (n int) {
	for i := range s.Regions {
		n += s.Regions[i].Entities()
	}
	return n
}

// Entities returns how many the region has.
func (r *RegionStatistics) Entities() (n int) {
	for i := range r.Shards {
		n += r.Shards[i].Entities
	}
	return n
}

// CurrentRegions returns the nodes with a region that is registered with the coordinator, sorted. Proxies are none. It waits for at
// most 3 s. The error matches ErrNoCoordinator or ErrStopped, or is that of ctx.
func (r *Region[C]) CurrentRegions(ctx context.Context) ([]identity.Node, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errNoReply)
	defer cancel()
	nodes, err := r.shell.currentRegions(ctx)
	if err != nil {
		return nil, fmt.Errorf("sharding: regions of type %q: %w", r.shell.name, err)
	}
	return nodes, nil
}

// Statistics asks all regions how many entities they have. It waits for at most a time, 3 s if that is 0; regions that
// have not answered by then are named. The error matches ErrNoCoordinator if nobody knows which regions there are, or
// ErrStopped, or is that of ctx.
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
			if b, failed[i] = s.query(limited, n, queryCounts); failed[i] == nil {
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

// currentRegions asks the coordinator.
func (s *shell) currentRegions(ctx context.Context) ([]identity.Node, error) {
	var boss identity.Node
	if err := s.call(ctx, func() { boss, _ = s.machine.Coordinator() }); err != nil {
		return nil, err
	}
	if boss.IsZero() {
		return nil, ErrNoCoordinator
	}
	b, err := s.query(ctx, boss, queryRegions)
	var nodes []identity.Node
	if err == nil {
		nodes, err = decodeNodes(b)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
	case cause != nil && !errors.Is(cause, errNoReply):
		return nil, cause
	default:
		return nil, fmt.Errorf("%w on %v: %w", ErrNoCoordinator, boss, err)
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	return nodes, nil
}

// query asks a node, which may be this one.
func (s *shell) query(ctx context.Context, to identity.Node, what query) (answer []byte, err error) {
	if to == s.node.Self() {
		if failed := s.call(ctx, func() { answer, err = s.answerQuery(what) }); failed != nil {
			return nil, failed
		}
		return answer, err
	}
	b, err := s.node.Transport().Request(ctx, to, kindQuery, encodeQuery(what, s.name))
	if err != nil {
		return nil, err
	}
	return decodeQueryReply(b)
}

// inform answers a question. It belongs to the loop.
func (s *shell) answerQuery(what query) ([]byte, error) {
	switch what {
	case queryRegions:
		c := s.machine.LocalCoordinator()
		if c == nil || c.Term() == 0 {
			return nil, ErrNoCoordinator
		}
		state, _ := c.State()
		return encodeNodes(state.Regions()), nil
	case queryCounts:
		if s.entities == nil {
			return nil, errors.New("it is a proxy")
		}
		return encodeCounts(s.counts()), nil
	}
	return nil, fmt.Errorf("question %d is not known", what)
}

// counts returns how many entities there are in the shards of this node. It belongs to the loop.
func (s *shell) counts() []ShardCount {
	hosted := s.machine.Hosted()
	counts := make([]ShardCount, len(hosted))
	for i, n := range hosted {
		counts[i] = ShardCount{n, s.machine.Tracked(n)}
	}
	return counts
}

// maxPendingQueries is how many questions of other nodes may wait for a loop.
const maxPendingQueries = 256

// questioned takes a question of another node.
func (rt *router) receiveQuery(_ context.Context, r *transport.Request) {
	reply := func(answer []byte, err error) {
		if failed := r.Reply(encodeQueryReply(answer, err)); failed != nil {
			rt.unsentReplies.Add(1)
		}
	}
	what, name, err := decodeQuery(r.Payload)
	if err != nil {
		reply(nil, err)
		return
	}
	s := rt.find(name)
	if s == nil {
		reply(nil, fmt.Errorf("%w: there is no region of the type", ErrStopped))
		return
	}
	if s.pendingQueries.Add(1) > maxPendingQueries {
		s.pendingQueries.Add(-1)
		reply(nil, errors.New("too many questions wait"))
		return
	}
	if !s.inbox.add(item{call: func() {
		s.pendingQueries.Add(-1)
		reply(s.answerQuery(what))
	}}) {
		s.pendingQueries.Add(-1)
		reply(nil, ErrStopped)
	}
}

// kindQuery is a question about a region. It never changes.
const kindQuery transport.Kind = 203

// question is what nodes ask each other about regions. The numbers never change.
type query byte

const (
	queryRegions query = 1 // to the coordinator: which regions there are
	queryCounts  query = 2 // how many entities a region has
)

// errNoReply is the cause of a context that ends since nobody has answered in time.
var errNoReply = errors.New("sharding: no answer in time")

const (
	maxQueryReply = 16 << 20
	maxReason     = 512
)

// encodeQuery encodes a question about a type.
func encodeQuery(what query, name string) []byte {
	return append([]byte{wireVersion, byte(what), byte(len(name))}, name...) //nolint:gosec // at most coordinator.MaxTypeLength
}

// decodeQuery reads what encodeQuery has written. The error matches errMalformed.
func decodeQuery(b []byte) (what query, name string, err error) {
	r := wire.NewReader(b, wireVersion, maxManifest, errMalformed)
	what = query(r.Byte("question"))
	name = string(r.Bytes(int(r.Byte("length")), "type"))
	return what, name, r.End()
}

// encodeQueryReply encodes an answer, or why there is none.
func encodeQueryReply(answer []byte, err error) []byte {
	if err != nil {
		text := err.Error()
		text = text[:min(len(text), maxReason)]
		return append(binary.AppendUvarint([]byte{wireVersion, 1}, uint64(len(text))), text...)
	}
	return append([]byte{wireVersion, 0}, answer...)
}

// decodeQueryReply reads what encodeQueryReply has written. The error matches errMalformed, or says why there is no answer.
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
	return nil, fmt.Errorf("the node says: %.*q", maxReason, text)
}

// encodeNodes encodes the nodes of regions.
func encodeNodes(regions []allocation.Region) []byte {
	dst := binary.AppendUvarint([]byte{wireVersion}, uint64(len(regions)))
	for i := range regions {
		dst = wire.AppendNode(dst, regions[i].Node)
	}
	return dst
}

// decodeNodes reads what encodeNodes has written. The error matches errMalformed.
func decodeNodes(b []byte) ([]identity.Node, error) {
	r := wire.NewReader(b, wireVersion, maxQueryReply, errMalformed)
	nodes := make([]identity.Node, r.Count(coordinator.MaxRegions, 10, "regions"))
	for i := range nodes {
		nodes[i] = r.Node()
	}
	return nodes, r.End()
}

// encodeCounts encodes how many entities shards have. The shards are sorted: each is written as what it is more than the one before.
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

// decodeCounts reads what encodeCounts has written. The error matches errMalformed.
func decodeCounts(b []byte) ([]ShardCount, error) {
	r := wire.NewReader(b, wireVersion, maxQueryReply, errMalformed)
	counts := make([]ShardCount, r.Count(coordinator.MaxShards, 2, "shards"))
	last := uint64(0)
	for i := range counts {
		n := last + r.Uint(coordinator.MaxShards-1, "shard")
		if n >= coordinator.MaxShards || i > 0 && n == last {
			r.Fail("shard %d comes behind %d", n, last)
		}
		counts[i] = ShardCount{Shard(n), int(r.Uint(1<<40, "entities"))} //nolint:gosec // checked
		last = n
	}
	return counts, r.End()
}
