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
	// Silent are the nodes with a region that has not answered in time, sorted.
	Silent []identity.Node
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
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errUnanswered)
	defer cancel()
	nodes, err := r.site.currentRegions(ctx)
	if err != nil {
		return nil, fmt.Errorf("sharding: regions of type %q: %w", r.site.name, err)
	}
	return nodes, nil
}

// Statistics asks all regions how many entities they have. It waits for at most a time, 3 s if that is 0; regions that
// have not answered by then are named. The error matches ErrNoCoordinator if nobody knows which regions there are, or
// ErrStopped, or is that of ctx.
func (r *Region[C]) Statistics(ctx context.Context, timeout time.Duration) (*Statistics, error) {
	s := r.site
	limited, cancel := context.WithTimeoutCause(ctx, cmp.Or(max(timeout, 0), queryTimeout), errUnanswered)
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
			if b, failed[i] = s.query(limited, n, askCounts); failed[i] == nil {
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
			out.Silent = append(out.Silent, n)
			continue
		}
		out.Regions = append(out.Regions, RegionStatistics{n, found[i]})
	}
	return out, nil
}

// currentRegions asks the coordinator.
func (s *site) currentRegions(ctx context.Context) ([]identity.Node, error) {
	var boss identity.Node
	if err := s.call(ctx, func() { boss, _ = s.machine.Boss() }); err != nil {
		return nil, err
	}
	if boss.IsZero() {
		return nil, ErrNoCoordinator
	}
	b, err := s.query(ctx, boss, askRegions)
	var nodes []identity.Node
	if err == nil {
		nodes, err = decodeNodes(b)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
	case cause != nil && !errors.Is(cause, errUnanswered):
		return nil, cause
	default:
		return nil, fmt.Errorf("%w on %v: %w", ErrNoCoordinator, boss, err)
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	return nodes, nil
}

// query asks a node, which may be this one.
func (s *site) query(ctx context.Context, to identity.Node, what question) (answer []byte, err error) {
	if to == s.node.Self() {
		if failed := s.call(ctx, func() { answer, err = s.inform(what) }); failed != nil {
			return nil, failed
		}
		return answer, err
	}
	b, err := s.node.Transport().Request(ctx, to, kindQuestion, encodeQuestion(what, s.name))
	if err != nil {
		return nil, err
	}
	return decodeInformation(b)
}

// inform answers a question. It belongs to the loop.
func (s *site) inform(what question) ([]byte, error) {
	switch what {
	case askRegions:
		c := s.machine.Coordinator()
		if c == nil || c.Term() == 0 {
			return nil, ErrNoCoordinator
		}
		state, _ := c.State()
		return encodeNodes(state.Regions()), nil
	case askCounts:
		if s.entities == nil {
			return nil, errors.New("it is a proxy")
		}
		return encodeCounts(s.counts()), nil
	}
	return nil, fmt.Errorf("question %d is not known", what)
}

// counts returns how many entities there are in the shards of this node. It belongs to the loop.
func (s *site) counts() []ShardCount {
	hosted := s.machine.Hosted()
	counts := make([]ShardCount, len(hosted))
	for i, n := range hosted {
		counts[i] = ShardCount{n, s.machine.Tracked(n)}
	}
	return counts
}

// maxQuestions is how many questions of other nodes may wait for a loop.
const maxQuestions = 256

// questioned takes a question of another node.
func (b *switchboard) questioned(_ context.Context, r *transport.Request) {
	reply := func(answer []byte, err error) {
		if failed := r.Reply(encodeInformation(answer, err)); failed != nil {
			b.unsent.Add(1)
		}
	}
	what, name, err := decodeQuestion(r.Payload)
	if err != nil {
		reply(nil, err)
		return
	}
	s := b.find(name)
	if s == nil {
		reply(nil, fmt.Errorf("%w: there is no region of the type", ErrStopped))
		return
	}
	if s.questions.Add(1) > maxQuestions {
		s.questions.Add(-1)
		reply(nil, errors.New("too many questions wait"))
		return
	}
	if !s.inbox.add(item{do: func() {
		s.questions.Add(-1)
		reply(s.inform(what))
	}}) {
		s.questions.Add(-1)
		reply(nil, ErrStopped)
	}
}

// kindQuestion is a question about a region. It never changes.
const kindQuestion transport.Kind = 203

// question is what nodes ask each other about regions. The numbers never change.
type question byte

const (
	askRegions question = 1 // to the coordinator: which regions there are
	askCounts  question = 2 // how many entities a region has
)

// errUnanswered is the cause of a context that ends since nobody has answered in time.
var errUnanswered = errors.New("sharding: no answer in time")

const (
	maxInformation = 16 << 20
	maxReason      = 512
)

// encodeQuestion encodes a question about a type.
func encodeQuestion(what question, name string) []byte {
	return append([]byte{formVersion, byte(what), byte(len(name))}, name...) //nolint:gosec // at most coordinator.MaxTypeLength
}

// decodeQuestion reads what encodeQuestion has written. The error matches errMalformed.
func decodeQuestion(b []byte) (what question, name string, err error) {
	r := wire.NewReader(b, formVersion, maxManifest, errMalformed)
	what = question(r.Byte("question"))
	name = string(r.Bytes(int(r.Byte("length")), "type"))
	return what, name, r.End()
}

// encodeInformation encodes an answer, or why there is none.
func encodeInformation(answer []byte, err error) []byte {
	if err != nil {
		text := err.Error()
		text = text[:min(len(text), maxReason)]
		return append(binary.AppendUvarint([]byte{formVersion, 1}, uint64(len(text))), text...)
	}
	return append([]byte{formVersion, 0}, answer...)
}

// decodeInformation reads what encodeInformation has written. The error matches errMalformed, or says why there is no answer.
func decodeInformation(b []byte) ([]byte, error) {
	r := wire.NewReader(b, formVersion, maxInformation, errMalformed)
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
	dst := binary.AppendUvarint([]byte{formVersion}, uint64(len(regions)))
	for i := range regions {
		dst = wire.AppendNode(dst, regions[i].Node)
	}
	return dst
}

// decodeNodes reads what encodeNodes has written. The error matches errMalformed.
func decodeNodes(b []byte) ([]identity.Node, error) {
	r := wire.NewReader(b, formVersion, maxInformation, errMalformed)
	nodes := make([]identity.Node, r.Count(coordinator.MaxRegions, 10, "regions"))
	for i := range nodes {
		nodes[i] = r.Node()
	}
	return nodes, r.End()
}

// encodeCounts encodes how many entities shards have. The shards are sorted: each is written as what it is more than the one before.
func encodeCounts(counts []ShardCount) []byte {
	dst := binary.AppendUvarint([]byte{formVersion}, uint64(len(counts)))
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
	r := wire.NewReader(b, formVersion, maxInformation, errMalformed)
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
