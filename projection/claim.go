// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
)

const (
	// claimRenewal is how often the one who clears says that it is still there.
	claimRenewal = 5 * time.Second
	// claimLife is how long another process waits for that before it takes over.
	claimLife = 30 * time.Second
	// claimLimit is how long the one who clears goes on without having been able to
	// say it. It is less, so that it has stopped by then.
	claimLimit = 20 * time.Second
)

// claimer empties a read model that has no transaction with its positions. Of
// the processes that find the mark of a rebuild one claims it, by a conditional
// move to marked positions that have the claim for an offset:
//
//	marked ""  --claim-->  marked "claim-me-1"  --renewals-->  marked "claim-me-7"  --cleared-->  not marked, ""
//	   ^                         |
//	   |                         | no renewal for 30 s: another process claims it
//	   +---- the first one finds out, if its Clear came when the mark was away
//
// A crash leaves the claim, which ends by itself. It is used by one session at a
// time.
type claimer struct {
	store Store
	empty func(ctx context.Context) error
	owner string
	moves int  // of the claim
	doubt bool // a Clear has ended, and it is not known whether it held the claim
}

func newClaimer(store Store, empty func(ctx context.Context) error) *claimer {
	return &claimer{store: store, empty: empty, owner: "claim-" + rand.Text() + "-"}
}

// claimed reports whether somebody clears the read model, or did when it crashed.
func claimed(positions []Position) bool {
	return slices.ContainsFunc(positions, func(p Position) bool { return p.Clear && p.Offset != "" })
}

// holds reports whether it has the claim.
func (c *claimer) holds(positions []Position) bool {
	return len(positions) > 0 && !slices.ContainsFunc(positions, func(p Position) bool {
		return !p.Clear || !strings.HasPrefix(string(p.Offset), c.owner)
	})
}

// clear empties the read model and takes the mark away. Several processes may try.
func (c *claimer) clear(ctx context.Context, g *gate, m Move) error {
	marked, err := c.await(ctx, m)
	if err != nil {
		return err
	}
	if err = g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	if err = c.claim(ctx, m.Projection, marked); errors.Is(err, ErrFenced) {
		return errMoved // another process was faster
	} else if err != nil {
		return err
	}
	c.doubt = true
	err = c.keeping(ctx, m.Projection)
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishPatience)
	defer cancel()
	if err = errors.Join(err, c.settle(soon, m.Projection)); err != nil {
		return err
	}
	held, err := c.store.Load(ctx, m.Projection)
	if err != nil {
		return err
	}
	if !c.holds(held) {
		return errMoved
	}
	to := slices.Clone(m.To)
	for i := range to {
		to[i].Offset = journal.Offset(beginning + rand.Text())
	}
	return c.store.Save(ctx, Move{Projection: m.Projection, From: held, To: to})
}

// beginning is what the offset of a position begins with that is at the beginning
// again. What follows makes it another one than all before: a process that loaded
// the old beginning, and has handled events since that were cleared, must not move it.
const beginning = "begin-"

// start returns where to read from.
func start(o journal.Offset) journal.Offset {
	if strings.HasPrefix(string(o), beginning) {
		return ""
	}
	return o
}

// settle looks what has become of the rebuild by the end of a Clear. If another
// process took over and the mark is away, what was emptied at last may be what has
// been built since, so the rebuild is asked for again. While the mark is there
// nothing is built: who clears then is left alone, else processes whose Clears are
// slow would take the claim from each other for ever.
func (c *claimer) settle(ctx context.Context, name string) error {
	if !c.doubt {
		return nil
	}
	stored, err := c.store.Load(ctx, name)
	if err != nil {
		return err
	}
	if !mustClear(stored) {
		if err = c.store.Reset(ctx, name); err != nil {
			return err
		}
		err = fmt.Errorf("another process took the rebuild over, which is done again: %w", ErrFenced)
	}
	c.doubt = false
	return err
}

// await returns the marked positions as soon as nobody else has claimed them, or
// has not been heard of for too long.
func (c *claimer) await(ctx context.Context, m Move) ([]Position, error) {
	for stored, since := m.From, time.Now(); ; {
		if !claimed(stored) || c.holds(stored) || time.Since(since) >= claimLife {
			return stored, nil
		}
		if err := wait(ctx, claimRenewal); err != nil {
			return nil, err
		}
		now, err := c.store.Load(ctx, m.Projection)
		switch {
		case err != nil:
			return nil, err
		case !mustClear(now):
			return nil, errMoved // it is done
		case !slices.Equal(now, stored):
			stored, since = now, time.Now()
		}
	}
}

// claim puts a new claim in the place of what is stored.
func (c *claimer) claim(ctx context.Context, name string, stored []Position) error {
	c.moves++
	to := slices.Clone(stored)
	for i := range to {
		to[i].Offset = journal.Offset(fmt.Sprintf("%s%d", c.owner, c.moves))
	}
	return c.store.Save(ctx, Move{Projection: name, From: stored, To: to})
}

// keeping empties the read model and renews the claim meanwhile. If that is lost, the
// context of Clear ends.
func (c *claimer) keeping(ctx context.Context, name string) error {
	clearing, cancel := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	defer keeper.Wait()
	defer cancel(nil)
	var lost error
	keeper.Go(func() {
		if lost = c.keep(clearing, name); lost != nil {
			cancel(lost)
		}
	})
	err := contain(func() error { return c.empty(clearing) })
	cancel(nil)
	keeper.Wait()
	return errors.Join(err, lost)
}

// keep renews the claim until ctx ends. An error says that the claim is lost, or
// soon may be.
func (c *claimer) keep(ctx context.Context, name string) error {
	for good := time.Now(); ; {
		err := wait(ctx, claimRenewal)
		if err == nil {
			err = c.renew(ctx, name)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was emptied, or Run ends
		case err == nil:
			good = time.Now()
		case errors.Is(err, ErrFenced) || time.Since(good) >= claimLimit-claimRenewal:
			return fmt.Errorf("renew the claim: %w", err)
		}
	}
}

func (c *claimer) renew(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, claimRenewal)
	defer cancel()
	stored, err := c.store.Load(ctx, name) // a renewal that failed may have been stored
	if err != nil {
		return err
	}
	if !c.holds(stored) {
		return ErrFenced
	}
	return c.claim(ctx, name, stored)
}
