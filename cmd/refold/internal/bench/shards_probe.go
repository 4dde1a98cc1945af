// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
)

const (
	// probePause is between two asks of the entity that stands for a shard, probeTimeout how long one of them may take.
	probePause   = 250 * time.Millisecond
	probeTimeout = 2 * time.Second
	// probePatience is when a shard will never answer.
	probePatience = 2 * time.Minute
)

// What a node learns of another.
const (
	eventUnreachable = "unreachable"
	eventDowned      = "downed"
	eventRemoved     = "removed"
)

// seenEvent is something that a node has learned of another.
type seenEvent struct {
	Kind string
	Node identity.Node
	At   time.Time
}

// watch keeps what the node learns of the others.
func (s *shardServer) watch(ctx context.Context) {
	kinds := map[cluster.EventKind]string{
		cluster.MemberUnreachable: eventUnreachable, cluster.MemberDowned: eventDowned, cluster.MemberRemoved: eventRemoved,
	}
	for e := range s.node.Events(ctx, cluster.MemberUnreachable, cluster.MemberDowned, cluster.MemberRemoved) {
		if kind := kinds[e.Kind]; kind != "" {
			s.mu.Lock()
			s.seen = append(s.seen, seenEvent{kind, e.Member.Node, time.Now()})
			s.mu.Unlock()
		}
	}
}

// learned returns that.
func (s *shardServer) learned() shardAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return shardAnswer{Seen: slices.Clone(s.seen)}
}

// probe asks an entity of each shard again and again until it answers, and the coordinator until there is one. Answered is when
// the last of them did, At when the coordinator did.
func (s *shardServer) probe(ctx context.Context) (a shardAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	of := make([]string, s.setup.Shards)
	for i, left := 0, len(of); left > 0; i++ {
		id := fmt.Sprintf("probe-%d", i)
		shard, err := s.region.ShardOf(id)
		if err != nil {
			return a, err
		}
		if of[shard] == "" {
			of[shard] = id
			left--
		}
	}
	answered := make([]time.Time, len(of))
	errs := make([]error, len(of)+1)
	again := func(f func(ctx context.Context) error) (time.Time, error) {
		for {
			limited, cancel := context.WithTimeout(ctx, probeTimeout)
			err := f(limited)
			cancel()
			if err == nil {
				return time.Now(), nil
			}
			if late := pause(ctx, probePause); late != nil {
				return time.Time{}, err
			}
		}
	}
	var wg sync.WaitGroup
	for i, id := range of {
		wg.Go(func() {
			answered[i], errs[i] = again(func(ctx context.Context) error {
				_, err := eventsourcing.Ask(ctx, s.region.Ref(id), where{})
				return err
			})
		})
	}
	a.At, errs[len(of)] = again(func(ctx context.Context) error {
		_, err := s.region.CurrentRegions(ctx)
		return err
	})
	wg.Wait()
	a.Answered = slices.MaxFunc(answered, time.Time.Compare)
	return a, firstError(errs)
}
