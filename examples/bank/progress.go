// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows the progress of apply: a bar on a terminal, otherwise a line every lineInterval.
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

// lineInterval is the time between two lines of progress.
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

// tally counts the outcomes of the lines of a file.
type tally struct {
	done, before, bad, inFlight int
	passed                      int            // refused because an earlier run went past the line
	refused                     map[string]int // by code
	elapsed                     time.Duration
	rejects                     string
}

func (t *tally) refuse(code string) {
	if t.refused == nil {
		t.refused = make(map[string]int)
	}
	t.refused[code]++
}

// print writes the final table of apply.
func (t *tally) print(w io.Writer) {
	refused := 0
	for _, n := range t.refused {
		refused += n
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int) { printf(tw, "%s\t%s\t\n", name, thousands(int64(n))) }
	row("done", t.done)
	if t.before > 0 {
		row("done before", t.before)
	}
	if t.passed > 0 {
		row("refused before", t.passed)
	}
	row("refused", refused)
	for _, code := range slices.Sorted(maps.Keys(t.refused)) {
		row(code, t.refused[code])
	}
	row("bad lines", t.bad)
	row("transfers in flight", t.inFlight)
	lines := t.done + t.before + t.passed + refused + t.bad
	perSecond := 0
	if t.elapsed > 0 {
		perSecond = int(float64(lines) / t.elapsed.Seconds())
	}
	row("commands a second", perSecond)
	_ = tw.Flush()
	if t.rejects != "" {
		printf(w, "lines that were refused or bad: %s\n", t.rejects)
	}
}

// thousands formats a number with commas.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
