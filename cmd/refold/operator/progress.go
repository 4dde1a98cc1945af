// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/refold-io/refold/journal"
)

// bar is a progress bar on a terminal. A nil *bar shows nothing.
type bar struct {
	all *mpb.Progress
	one *mpb.Bar
}

// bar starts a progress bar over the persistence IDs of a source. It returns nil if Stderr is not a
// terminal or wanted is false.
func (e *Env) bar(ctx context.Context, src *Source, wanted bool) *bar {
	lister, ok := journal.As[journal.IDLister](src.Journal)
	if !wanted || !ok || !e.Terminal {
		return nil
	}
	total := int64(0)
	for _, err := range lister.PersistenceIDs(ctx, "") {
		if err != nil {
			return nil // the command will meet the same error
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

// stop removes the bar.
func (b *bar) stop() {
	if b != nil {
		b.one.Abort(true)
		b.all.Wait()
	}
}

// copyBars shows the progress of a copy, with one bar for each stage. A nil *copyBars shows
// nothing.
type copyBars struct {
	all *mpb.Progress

	mu     sync.Mutex
	stages [Checking + 1]*mpb.Bar
	found  atomic.Uint64 // IDs
}

// copyBars starts the bars. It returns nil if Stderr is not a terminal.
func (e *Env) copyBars(ctx context.Context) *copyBars {
	if !e.Terminal {
		return nil
	}
	return &copyBars{all: mpb.NewWithContext(ctx, mpb.WithOutput(e.Stderr), mpb.WithWidth(40), mpb.WithAutoRefresh())}
}

func (b *copyBars) set(p CopyProgress) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Stage == Comparing {
		b.found.Store(p.Done)
	}
	if b.stages[p.Stage] == nil {
		b.stages[p.Stage] = b.start(p)
	}
	if now := int64(p.Done); now > b.stages[p.Stage].Current() { //nolint:gosec // a count
		b.stages[p.Stage].SetCurrent(now)
	}
}

// start adds the bar of a stage and ends the earlier ones.
func (b *copyBars) start(p CopyProgress) *mpb.Bar {
	for _, before := range b.stages[:p.Stage] {
		if before != nil {
			before.Abort(true)
		}
	}
	total := int64(p.Total) //nolint:gosec // a count
	switch p.Stage {
	case Comparing:
		return b.all.AddSpinner(0, mpb.PrependDecorators(decor.Any(func(decor.Statistics) string {
			return fmt.Sprintf("comparing: %d persistence IDs ", b.found.Load())
		})))
	case Copying:
		return b.all.AddBar(
			total,
			mpb.PrependDecorators(decor.CountersNoUnit("copying: %d of %d records ")),
			mpb.AppendDecorators(decor.Percentage(), decor.AverageSpeed(0, "  %.0f/s"), decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace)),
		)
	case Checking:
	}
	return b.all.AddBar(
		total,
		mpb.PrependDecorators(decor.CountersNoUnit("checking: %d of %d persistence IDs ")),
		mpb.AppendDecorators(decor.Percentage()),
	)
}

// stop removes the bars.
func (b *copyBars) stop() {
	if b == nil {
		return
	}
	for _, one := range b.stages {
		if one != nil {
			one.Abort(true)
		}
	}
	b.all.Wait()
}
