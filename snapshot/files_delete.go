// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Delete deletes every match that it can, and makes that durable. The files of
// a newer version stay, and so do damaged ones when the bounds on the time ask
// for what can't be read in them; the error names them.
func (f *Files) Delete(ctx context.Context, id string, c Criteria) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.leave()
	if err := f.deleteAll(ctx, id, c); err != nil {
		return fmt.Errorf("snapshot: delete %q: %w", id, err)
	}
	return nil
}

func (f *Files) deleteAll(ctx context.Context, id string, c Criteria) error {
	if err := errors.Join(context.Cause(ctx), checkID(id)); err != nil {
		return err
	}
	numbers, err := f.candidates(id, c)
	if err != nil || len(numbers) == 0 {
		return err
	}
	var errs []error
	for _, n := range numbers {
		if err := context.Cause(ctx); err != nil {
			errs = append(errs, err)
			break
		}
		if err := f.deleteOne(id, n, c); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, f.fs.SyncDir(f.idDir(id)))...)
}

func (f *Files) deleteOne(id string, seqNr uint64, c Criteria) error {
	m, err := f.metadata(id, seqNr)
	switch {
	case errors.Is(err, ErrCorrupt) && c.anyTime(): // the number says enough
	case err != nil:
		return err
	case !c.Matches(m):
		return nil
	}
	return f.fs.Remove(f.path(id, seqNr))
}

// anyTime reports whether the bounds on the time leave nothing out.
func (c Criteria) anyTime() bool {
	return !c.MinTime.After(Latest().MinTime) && !c.MaxTime.Before(Latest().MaxTime)
}
