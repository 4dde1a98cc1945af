// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
)

// shardCrew are processes that have a region each.
type shardCrew struct{ *crew }

func newShardCrew(command []string) (shardCrew, error) {
	c, err := newCrew(command)
	return shardCrew{c}, err
}

// shard has a process do something, and waits for it.
func (h *hand) shard(o shardOrder) (a shardAnswer, err error) {
	if err = h.say(o, &a); err == nil && a.Err != "" {
		err = errors.New(a.Err)
	}
	if err != nil {
		err = fmt.Errorf("%s of node %s: %w", o.Do, h.name, err)
	}
	return a, err
}

// shardEach has all processes do something at a time, each its own.
func shardEach(hands []*hand, order func(i int) shardOrder) ([]shardAnswer, error) {
	answers := make([]shardAnswer, len(hands))
	errs := make(chan error, len(hands))
	for i, h := range hands {
		go func() {
			var err error
			answers[i], err = h.shard(order(i))
			errs <- err
		}()
	}
	var all []error
	for range hands {
		all = append(all, <-errs)
	}
	return answers, errors.Join(all...)
}

// join starts a process whose node joins those that were started before, and waits until it is up.
func (c shardCrew) join(ctx context.Context, name string, setup shardSetup) (*hand, shardAnswer, error) {
	h, err := c.start(ctx, name)
	if err != nil {
		return nil, shardAnswer{}, err
	}
	setup.Seeds, setup.Access = []string{c.hands[0].name}, c.server.Access()
	a, err := h.shard(shardOrder{Do: shardJoin, Name: name, Setup: &setup})
	return h, a, err
}

// joinAll starts as many, one after the other. All are registered with the coordinator when it returns.
func (c shardCrew) joinAll(ctx context.Context, n int, setup shardSetup) error {
	for i := range n {
		if _, _, err := c.join(ctx, fmt.Sprintf("n%d", i+1), setup); err != nil {
			return err
		}
	}
	_, err := shardEach(c.hands, func(int) shardOrder { return shardOrder{Do: shardAwait, Count: n} })
	return err
}
