// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how far apply has come: a bar on a terminal, else a line now
// and then.
type progress interface {
	add()
	stop()
}

func newProgress(w io.Writer, total int) progress {
	if file, ok := w.(*os.File); ok && cwriter.IsTerminal(int(file.Fd())) {
		return newBar(w, total)
	}
	return newPlainProgress(w, total)
}

type barProgress struct {
	all *mpb.Progress
	bar *mpb.Bar
}

func newBar(w io.Writer, total int) *barProgress {
	p := mpb.New(mpb.WithOutput(w))
	return &barProgress{all: p, bar: p.AddBar(int64(total),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d of %d lines ")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name("  "), decor.AverageSpeed(0, "%.0f/s")),
	)}
}

func (b *barProgress) add() { b.bar.Increment() }

func (b *barProgress) stop() {
	b.bar.Abort(true)
	b.all.Wait()
}

// lineInterval is how often a line is written where there is no terminal.
const lineInterval = 5 * time.Second

type plainProgress struct {
	total int
	count atomic.Int64
	quit  chan struct{}
	done  sync.WaitGroup
}

func newPlainProgress(w io.Writer, total int) *plainProgress {
	l := &plainProgress{total: total, quit: make(chan struct{})}
	l.done.Go(func() {
		tick := time.NewTicker(lineInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				printf(w, "%s of %s lines\n", thousands(l.count.Load()), thousands(int64(total)))
			case <-l.quit:
				return
			}
		}
	})
	return l
}

func (l *plainProgress) add() { l.count.Add(1) }

func (l *plainProgress) stop() {
	close(l.quit)
	l.done.Wait()
}
