// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

type progress interface {
	add()
	stop()
}

// lineProgress shows a bar on a terminal. On any other output it prints a line every lineInterval.
type lineProgress struct {
	total int64
	count atomic.Int64
	quit  chan struct{}
	done  sync.WaitGroup
}

const (
	// lineInterval is the time between two lines of progress, and barInterval between two bars.
	lineInterval = 5 * time.Second
	barInterval  = 200 * time.Millisecond
	barWidth     = 40
	eraseLine    = "\r\x1b[K"
)

func newProgress(w io.Writer, total int) progress {
	p := &lineProgress{total: int64(total), quit: make(chan struct{})}
	terminal, interval := isTerminal(w), lineInterval
	if terminal {
		interval = barInterval
	}
	p.done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-p.quit:
				if terminal {
					printf(w, eraseLine)
				}
				return
			}
			n := p.count.Load()
			if filled := int(barWidth * min(n, p.total) / max(1, p.total)); terminal {
				printf(w, "%s[%s%s] %s of %s lines", eraseLine, strings.Repeat("=", filled), strings.Repeat(" ", barWidth-filled), thousands(n), thousands(p.total))
			} else {
				printf(w, "%s of %s lines\n", thousands(n), thousands(p.total))
			}
		}
	})
	return p
}

func (p *lineProgress) add() { p.count.Add(1) }

func (p *lineProgress) stop() {
	close(p.quit)
	p.done.Wait()
}

func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

type tally struct {
	done, bad, inFlight int
	repeated            int            // executed or refused in an earlier run
	refused             map[string]int // by code
	elapsed             time.Duration
	rejects             string
}

func (t *tally) add(outcome, code string) {
	switch outcome {
	case "done":
		t.done++
	case "repeated", "passed":
		t.repeated++
	case "bad":
		t.bad++
	case "refused":
		if t.refused == nil {
			t.refused = make(map[string]int)
		}
		t.refused[code]++
	}
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
	if t.repeated > 0 {
		row("repeated", t.repeated)
	}
	row("refused", refused)
	for _, code := range slices.Sorted(maps.Keys(t.refused)) {
		row(code, t.refused[code])
	}
	row("bad lines", t.bad)
	row("transfers in flight", t.inFlight)
	lines := t.done + t.repeated + refused + t.bad
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

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
