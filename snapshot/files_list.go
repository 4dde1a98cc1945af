// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
)

// List yields what stood in the directory when it began, less what was deleted
// since. Files that can't be read are passed over and named by the error at the
// end.
func (f *Files) List(ctx context.Context, id string, c Criteria) iter.Seq2[Metadata, error] {
	return func(yield func(Metadata, error) bool) {
		numbers, err := f.listNumbers(ctx, id, c)
		errs := []error{err}
		for _, n := range numbers {
			m, err := f.listOne(ctx, id, n)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				errs = append(errs, err)
			case c.Matches(m) && !yield(m, nil):
				return
			}
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerVersion) {
				break // it is not about this one file
			}
		}
		if err := errors.Join(errs...); err != nil {
			yield(Metadata{}, fmt.Errorf("snapshot: list %q: %w", id, err))
		}
	}
}

func (f *Files) listNumbers(ctx context.Context, id string, c Criteria) ([]uint64, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.leave()
	if err := errors.Join(context.Cause(ctx), checkID(id)); err != nil {
		return nil, err
	}
	return f.candidates(id, c)
}

func (f *Files) listOne(ctx context.Context, id string, seqNr uint64) (Metadata, error) {
	if err := f.enter(); err != nil {
		return Metadata{}, err
	}
	defer f.leave()
	if err := context.Cause(ctx); err != nil {
		return Metadata{}, err
	}
	return f.metadata(id, seqNr)
}
