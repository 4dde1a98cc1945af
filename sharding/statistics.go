// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
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
