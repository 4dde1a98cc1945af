// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"fmt"

	"github.com/refold-io/refold/journal"
)

// arrange returns the positions with which a number of workers begins, given
// those that are stored. A range that is too large for one of them is divided,
// and its parts begin where it was. Ranges are never joined, as there may be
// events that one of them has handled and the other has not: then there are more
// ranges than asked for.
func arrange(stored []Position, workers int) ([]Position, error) {
	ranges, err := journal.SplitSlices(workers)
	if err != nil {
		return nil, err
	}
	size := ranges[0].Count
	if len(stored) == 0 {
		positions := make([]Position, len(ranges))
		for i, r := range ranges {
			positions[i].Slices = r
		}
		return positions, nil
	}
	var positions []Position
	next := 0
	for _, p := range stored {
		if p.Slices.First != next || p.Slices.Count < 1 || p.Slices.Count > size && p.Slices.Count%size != 0 {
			return nil, fmt.Errorf("%w: the stored ranges of slices do not fit: %s where slice %d should begin one", ErrInvalid, p.Slices, next)
		}
		next += p.Slices.Count
		count := min(size, p.Slices.Count)
		for first := p.Slices.First; first < next; first += count {
			part := p
			part.Slices = journal.Slices{First: first, Count: count}
			positions = append(positions, part)
		}
	}
	if next != journal.SliceCount {
		return nil, fmt.Errorf("%w: the stored ranges of slices end at %d of %d", ErrInvalid, next, journal.SliceCount)
	}
	return positions, nil
}

// mustClear reports whether a rebuild was asked for.
func mustClear(positions []Position) bool {
	for _, p := range positions {
		if p.Clear {
			return true
		}
	}
	return false
}
