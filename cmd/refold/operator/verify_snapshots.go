// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/snapshot"
)

// snapshots looks at the snapshots of an ID, and whether they cover what was
// deleted of it.
func (v *verifier) snapshots(ctx context.Context, h *history) error {
	deleted := h.highest // up to which number there are no records
	if h.first > 0 {
		deleted = h.first - 1
	}
	if h.broken && h.first == 0 {
		deleted = 0 // nothing is known
	}
	covered := deleted == 0
	if v.opts.Snapshots == nil {
		if !covered {
			v.problem(h.id, 0, fmt.Errorf("deleted prefix: the events up to %d are deleted, and there is no snapshot store to look into", deleted))
		}
		return nil
	}
	for md, err := range v.opts.Snapshots.List(ctx, h.id, snapshot.Latest()) {
		if err != nil {
			if unreachable(ctx, err) {
				return err
			}
			v.problem(h.id, 0, fmt.Errorf("the snapshots can't be listed: %w", err))
			break
		}
		v.report.Snapshots++
		err := v.snapshot(ctx, h, md)
		switch {
		case err == nil:
			covered = covered || md.SequenceNr >= deleted
		case unreachable(ctx, err):
			return err
		default:
			v.problem(h.id, md.SequenceNr, err)
		}
	}
	if !covered {
		v.problem(h.id, 0, fmt.Errorf("deleted prefix: the events up to %d are deleted, and no good snapshot covers them", deleted))
	}
	return nil
}

// snapshot looks at one snapshot.
func (v *verifier) snapshot(ctx context.Context, h *history, md snapshot.Metadata) error {
	if md.SequenceNr > h.highest {
		return fmt.Errorf("the snapshot is above the highest number, which is %d", h.highest)
	}
	s, err := v.opts.Snapshots.Load(ctx, h.id, snapshot.At(md.SequenceNr))
	if errors.Is(err, snapshot.ErrNotFound) {
		return errors.New("the snapshot is listed, but can't be found")
	}
	if err != nil {
		return fmt.Errorf("the snapshot can't be read: %w", err)
	}
	if v.id != nil {
		v.id.snapshot(&s)
	}
	if h.linked != nil {
		if err := h.linked.checkState(h.id, s.Manifest, s.Payload); err != nil {
			return fmt.Errorf("the snapshot can't be decoded: %w", err)
		}
		return nil
	}
	format := formatOfState(s.Manifest, s.Payload)
	if format == unknownFormat {
		v.report.Unchecked++
	}
	if err := format.check(s.Payload); err != nil {
		return fmt.Errorf("the snapshot can't be decoded: %w", err)
	}
	return nil
}
