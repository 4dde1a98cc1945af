// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// shardCrew are processes that have a region each.
type shardCrew struct{ *crew }

func newShardCrew(command []string) (shardCrew, error) {
	c, err := newCrew(command)
	return shardCrew{c}, err
}

// shard has a process do something, and waits for it.
func (h *hand) shard(o shardOrder) (shardAnswer, error) { return say[shardAnswer](h, o.Do, o) }

// shardEach has all processes do something at a time, each its own.
func shardEach(hands []*hand, order func(i int) shardOrder) ([]shardAnswer, error) {
	return atOnce(hands, (*hand).shard, order)
}

// join starts a process whose node joins those that were started before, waits until it is up, and says when that was.
func (c shardCrew) join(ctx context.Context, name string, setup shardSetup) (time.Time, error) {
	h, err := c.start(ctx, name)
	if err != nil {
		return time.Time{}, err
	}
	setup.Seeds, setup.Access = []string{c.hands[0].name}, c.server.Access()
	a, err := h.shard(shardOrder{Do: shardJoin, Name: name, Setup: &setup})
	return a.At, err
}

// joinAll starts as many, one after the other. All are registered with the coordinator when it returns.
func (c shardCrew) joinAll(ctx context.Context, n int, setup shardSetup) error {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i+1)
	}
	return c.joinNamed(ctx, names, setup)
}

// joinNamed does the same with names, the oldest first.
func (c shardCrew) joinNamed(ctx context.Context, names []string, setup shardSetup) error {
	for _, name := range names {
		if _, err := c.join(ctx, name, setup); err != nil {
			return err
		}
	}
	_, err := shardEach(c.hands, func(int) shardOrder { return shardOrder{Do: shardAwait, Count: len(names)} })
	return err
}

// murder kills a process, and forgets it.
func (c shardCrew) murder(h *hand) error {
	c.hands = slices.DeleteFunc(c.hands, func(o *hand) bool { return o == h })
	err := h.cmd.Process.Kill()
	_ = h.cmd.Wait() // it was killed
	return err
}
