// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// listFlags are the flags of the commands that list.
type listFlags struct {
	journalFlag
	After string `help:"List the persistence IDs behind this one." placeholder:"ID"`
	Limit int    `help:"Print at most so many; 0 is no limit." default:"1000"`
	JSON  bool   `name:"json" help:"Print one JSON object a line."`
}

func (f *listFlags) check(id string) error {
	switch {
	case f.Limit < 0:
		return fmt.Errorf("--limit is %d, less than 0", f.Limit)
	case id != "" && f.After != "":
		return errors.New("--after is for all persistence IDs, but one is named")
	}
	return nil
}

// limit is how many are printed.
func (f *listFlags) limit() int {
	if f.Limit == 0 {
		return math.MaxInt
	}
	return f.Limit
}

// eachID calls do with the persistence IDs behind --after, until do has enough.
func (f *listFlags) eachID(ctx context.Context, src *Source, do func(id string) (more bool, err error)) error {
	lister, ok := journal.As[journal.IDLister](src.Journal)
	if !ok {
		return fmt.Errorf("%w: name one", ErrNoLister)
	}
	for id, err := range lister.PersistenceIDs(ctx, f.After) {
		if err != nil {
			return fmt.Errorf("list the persistence IDs: %w", err)
		}
		if more, err := do(id); !more || err != nil {
			return err
		}
	}
	return nil
}

// known returns an error unless the source holds something of a persistence ID,
// and else its highest number.
func known(ctx context.Context, src *Source, id string) (highest uint64, err error) {
	highest, err = src.Journal.HighestSequenceNr(ctx, id)
	if err != nil || highest > 0 {
		return highest, err
	}
	if src.Snapshots != nil {
		for _, err := range src.Snapshots.List(ctx, id, snapshot.Latest()) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("there is no persistence ID %q; the events command lists those that there are", id)
}
