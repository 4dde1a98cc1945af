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

	"github.com/refold-io/refold/internal/panics"
)

const (
	// claimRenewal is the interval at which the clearing process renews its claim.
	claimRenewal = 5 * time.Second
	// claimLife is how long another process waits for a renewal before it takes over the claim.
	claimLife = 30 * time.Second
	// claimLimit is how long the clearing process continues without a successful renewal. It is
	// shorter than claimLife, so that the process has stopped before another one takes over.
	claimLimit = 20 * time.Second
)

// claimer empties a read model whose store has no transactions with the positions. One of the
// processes that load the mark of a rebuild claims it, by a conditional move that sets
// Position.Claim:
//
//	Clear, ""  --claim-->  Clear, "me-1"  --renewals-->  Clear, "me-7"  --cleared-->  "me-7"
//	   ^                         |
//	   |                         | no renewal for 30 s: another process claims it
//	   +---- the first process requests a rebuild, if its Clear ended after the mark was removed
//
// A crash leaves the claim in the store, where it expires. The claim remains stored after the
// rebuild, so that the first positions of each rebuild differ from those of all earlier rebuilds. A
// process that loaded the first positions of an earlier rebuild, and has handled events that were
// cleared afterwards, is therefore fenced. Only one session uses a claimer at a time.
type claimer struct {
	store      Store
	empty      func(ctx context.Context) error
	owner      string
	moves      int  // number of moves that set the claim
	unresolved bool // a Clear has ended, and it is unknown whether the claim was held until then
}

func newClaimer(store Store, empty func(ctx context.Context) error) *claimer {
	return &claimer{store: store, empty: empty, owner: rand.Text() + "-"}
}

// claimed reports whether a process is clearing the read model, or crashed while clearing it.
func claimed(positions []Position) bool {
	return slices.ContainsFunc(positions, func(p Position) bool { return p.Clear && p.Claim != "" })
}

func (c *claimer) holds(positions []Position) bool {
	return len(positions) > 0 && !slices.ContainsFunc(positions, func(p Position) bool {
		return !p.Clear || !strings.HasPrefix(p.Claim, c.owner)
	})
}

// clear empties the read model and removes the mark. Several processes may call it.
func (c *claimer) clear(ctx context.Context, g *pauseGate, m Move) error {
	marked, err := c.waitForClaim(ctx, m)
	if err != nil {
		return err
	}
	if err = g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	if err = c.claim(ctx, m.Projection, marked); errors.Is(err, ErrFenced) {
		return errRangesChanged // another process was faster
	} else if err != nil {
		return err
	}
	c.unresolved = true
	err = c.clearWithRenewal(ctx, m.Projection)
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishPatience)
	defer cancel()
	if err = errors.Join(err, c.checkOutcome(soon, m.Projection)); err != nil {
		return err
	}
	held, err := c.store.Load(ctx, m.Projection)
	if err != nil {
		return err
	}
	if !c.holds(held) {
		return errRangesChanged
	}
	to := slices.Clone(m.To)
	for i := range to {
		to[i].Claim = held[0].Claim
	}
	return c.store.Save(ctx, Move{Projection: m.Projection, From: held, To: to})
}

// checkOutcome checks the outcome of the rebuild after a Clear has ended. If another process took
// over and has already removed the mark, the Clear may have removed parts of the new read model, so
// checkOutcome requests another rebuild. While the mark is present, no process builds the read
// model, so checkOutcome does not disturb the other process. Otherwise two processes with slow
// Clears would take the claim from each other indefinitely.
func (c *claimer) checkOutcome(ctx context.Context, name string) error {
	if !c.unresolved {
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
		err = fmt.Errorf("another process took over the rebuild, another rebuild was requested: %w", ErrFenced)
	}
	c.unresolved = false
	return err
}

// waitForClaim returns the marked positions as soon as no other process holds a claim, or the claim
// has expired.
func (c *claimer) waitForClaim(ctx context.Context, m Move) ([]Position, error) {
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
			return nil, errRangesChanged // the rebuild is complete
		case !slices.Equal(now, stored):
			stored, since = now, time.Now()
		}
	}
}

// claim replaces the stored claim by a new one.
func (c *claimer) claim(ctx context.Context, name string, stored []Position) error {
	c.moves++
	to := slices.Clone(stored)
	for i := range to {
		to[i].Claim = fmt.Sprintf("%s%d", c.owner, c.moves)
	}
	return c.store.Save(ctx, Move{Projection: name, From: stored, To: to})
}

// clearWithRenewal empties the read model and renews the claim concurrently. The context of Clear
// ends when the claim is lost.
func (c *claimer) clearWithRenewal(ctx context.Context, name string) error {
	clearing, cancel := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	defer keeper.Wait()
	defer cancel(nil)
	var lost error
	keeper.Go(func() {
		if lost = panics.Catch(func() error { return c.renewUntil(clearing, name) }); lost != nil {
			cancel(lost)
		}
	})
	err := panics.Catch(func() error { return c.empty(clearing) })
	cancel(nil)
	keeper.Wait()
	return errors.Join(err, lost)
}

// renewUntil renews the claim until ctx ends. It returns an error if the claim is lost or about to
// expire.
func (c *claimer) renewUntil(ctx context.Context, name string) error {
	for good := time.Now(); ; {
		err := wait(ctx, claimRenewal)
		if err == nil {
			err = c.renew(ctx, name)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the read model was emptied, or Run ends
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
