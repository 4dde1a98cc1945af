// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"strings"
	"testing"
	"time"
)

// The log lines about the beginning and the end of an outage.
const (
	lineSilent = "no coordinator replies"
	lineAgain  = "coordinator replies again"
)

// lines returns the log lines that contain a text.
func (w *world) lines(text string) (found []string) {
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// TestOutageIsLogged checks that the log reports once that no coordinator replies, and once that a coordinator replies again.
func TestOutageIsLogged(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Tuning.RetryInterval = "library", time.Second
		a := w.start("a") // a proxy: no node has the role
		w.up(a)
		w.sleep(4 * time.Second)
		if all := w.lines(lineSilent); len(all) != 0 {
			w.Errorf("before the time limit, the log has %q, want no line about an outage", all)
		}
		check := func(outages int) {
			w.Helper()
			w.sleep(time.Minute)
			silent, again := w.lines(lineSilent), w.lines(lineAgain)
			if len(silent) != outages || len(again) != outages-1 {
				w.Fatalf("after %d outages the log has %q and %q, want one line for each beginning and each end", outages, silent, again)
			}
			for _, line := range append(silent, again...) {
				for _, want := range []string{"node=a#", "role=library", "type=diary"} {
					if !strings.Contains(line, want) {
						w.Errorf("log line without %s: %s", want, line)
					}
				}
			}
		}
		check(1)
		b := w.start("b", "library")
		w.up(a, b)
		w.must(a.region.AwaitReady(w.Context()))
		w.sleep(time.Minute)
		if silent, again := w.lines(lineSilent), w.lines(lineAgain); len(silent) != 1 || len(again) != 1 {
			w.Errorf("after the end of an outage the log has %q and %q, want one line of each", silent, again)
		}
		w.must(b.Shutdown(w.Context()))
		check(2)
	})
}

// TestMovingCoordinatorLogsNoOutage checks that the log reports no outage while the coordinator
// moves to another node.
func TestMovingCoordinatorLogsNoOutage(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 10, 0)
		w.must(all[0].Shutdown(w.Context()))
		w.spread(all[1:], 10, 1)
		w.sleep(time.Minute)
		if lines := w.lines(lineSilent); len(lines) != 0 {
			w.Errorf("the log has %q, want no line about an outage", lines)
		}
	})
}
