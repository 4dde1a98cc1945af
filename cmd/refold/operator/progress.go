// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/refold-io/refold/journal"
)

// bar shows on a terminal how far a command is. A nil *bar shows nothing.
type bar struct {
	all *mpb.Progress
	one *mpb.Bar
}

// bar starts a progress bar over the persistence IDs of a source, if it is
// wanted and somebody sees it.
func (e *Env) bar(ctx context.Context, src *Source, wanted bool) *bar {
	lister, ok := journal.As[journal.IDLister](src.Journal)
	if !wanted || !ok || !e.Terminal {
		return nil
	}
	total := int64(0)
	for _, err := range lister.PersistenceIDs(ctx, "") {
		if err != nil {
			return nil // it will come up again
		}
		total++
	}
	all := mpb.NewWithContext(ctx, mpb.WithOutput(e.Stderr), mpb.WithWidth(40), mpb.WithAutoRefresh())
	return &bar{all: all, one: all.AddBar(
		total,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d of %d persistence IDs ")),
		mpb.AppendDecorators(decor.Percentage(), decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace)),
	)}
}

func (b *bar) set(done uint64) {
	if b != nil {
		b.one.SetCurrent(int64(done)) //nolint:gosec // a count
	}
}

// stop removes the bar and waits until it is gone.
func (b *bar) stop() {
	if b != nil {
		b.one.Abort(true)
		b.all.Wait()
	}
}
