// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package register

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

func (r *Store) claim(ctx context.Context, c *coordinator.Change) error {
	own := strconv.FormatUint(c.Term, 10) + " " + c.Events[0].Node.String() + " " + r.nonce
	err := r.data.ChangeClaims(ctx, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
		held, err := claimsOf(s)
		if err != nil {
			return s, err
		}
		if other := held.conflicting(c.Term, own); other != "" {
			return s, fmt.Errorf("%w: claim of term %d: found claim %q", ErrConflict, c.Term, other)
		}
		if s.Contains(own) {
			return s, nil
		}
		if s, err = s.Remove(r.data.Self(), held...); err != nil {
			return s, err
		}
		return s.Add(r.data.Self(), own)
	})
	if err != nil {
		return fmt.Errorf("sharding: claim term %d: %w", c.Term, err)
	}
	held, err := r.readClaims(ctx)
	if err != nil {
		return err
	}
	if other := held.conflicting(c.Term, own); other != "" {
		return fmt.Errorf("%w: claim of term %d: found claim %q", ErrConflict, c.Term, other)
	}
	// Every change that was acknowledged to other nodes precedes the claim and is read now.
	before, err := r.read(ctx, false)
	if err != nil {
		return err
	}
	if before.term < c.Term {
		if after, err := before.state.Apply(c.Events...); before.rev != c.Rev || err != nil || !after.Equal(c.After) {
			return fmt.Errorf("%w: claim of term %d after event %d: found other data at %d", ErrConflict, c.Term, c.Rev, before.rev)
		}
	}
	r.begin(c.After)
	if err := r.write(ctx, c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term, r.holds = max(r.term, c.Term), true
	return nil
}

// begin records the state that a later Load may find if the write fails.
func (r *Store) begin(after coordinator.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if after.Term() >= r.begun.Term() {
		r.begun = after
	}
}

func (r *Store) write(ctx context.Context, c *coordinator.Change) error {
	rev := c.Rev + uint64(len(c.Events))
	timestamp, err := pack(c.Term, rev)
	if err != nil {
		return err
	}
	after := coordinator.AppendState(nil, c.After)
	err = r.data.ChangeState(ctx, func(held crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error) {
		switch term, at := unpack(held.Timestamp()); {
		case term > c.Term:
			return held, fmt.Errorf("%w: term %d: term %d exists", ErrFenced, c.Term, term)
		case term == c.Term && at == rev: // the change itself may already be stored
			if value, bad := held.Value(); bad != nil || !bytes.Equal(value, after) {
				return held, fmt.Errorf("%w: other data is stored at %d", ErrConflict, at)
			}
			return held, nil
		case term == c.Term && c.IsClaim() && at > rev: // later changes followed the claim
			return held, nil
		case term == c.Term && (c.IsClaim() || at != c.Rev), term < c.Term && !c.IsClaim():
			return held, fmt.Errorf("%w: change of term %d after event %d: the data has term %d, event %d", ErrConflict, c.Term, c.Rev, term, at)
		}
		return held.SetBy(r.data.Self(), after, func(*crdt.Self, int64, []byte) (int64, error) { return timestamp, nil })
	})
	if err != nil {
		return fmt.Errorf("sharding: write the state of term %d at %d: %w", c.Term, rev, err)
	}
	held, err := r.readClaims(ctx)
	if err != nil {
		return err
	}
	if highest := held.highest(); highest > c.Term {
		return fmt.Errorf("%w: term %d: term %d is claimed", ErrFenced, c.Term, highest)
	}
	return nil
}
