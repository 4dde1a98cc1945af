// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/effort"
)

var (
	seedFlag  = flag.Int64("sim.seed", -1, "run this seed only and print its trace")
	seedsFlag = flag.Uint64("sim.seeds", 0, "how many seeds each simulation runs; 0 is the usual number")
)

// everyday are the commands whose replies do not depend on timing. "@" is replaced by the name of
// the command, "#" by the name of any command.
var everyday = []string{
	"persist(@a) reply",
	"persist(@a) reply",
	"persist(@a,@b) reply",
	"persist(@a) persist(@b) reply",
	"even{persist(@a) reply}{refuse}",
	"even{persist(@a,@b,@c) reply}{persist(@d) reply}",
	"reply", "reply", "reply",
	"",
	"refuse", "unhandled", "noreply",
	"persist(@a) refuse",
	"persist(@a) noreply",
	"persist(@a) then(@1){reply request(@1)}",
	"persist(@a) then(@1){persist(@b) then(@2){reply}} then(@3){persist(@c)}",
	"then(@1){request(@1)} reply",
	"persist(@a) request(@r) reply save",
	"save persist(@a) save persist(@b) reply",
	"persist(@a*) reply",
	"persist(?)", "persist(@a) persist(?)",
	"then(@1){request(@1)} persist(@a) reply",
	"panic", "persist(!)", "persist(@a) panic", "persist(@a) then(@1){panic}",
}

// stashing are commands that stash other commands, or reply later.
var stashing = []string{
	"stash", "even{stash}{reply}", "even{stash}{persist(@a) reply}", "persist(@a) unstash reply", "unstash reply",
	"later", "persist(@a) later", "even{later}{reply}", "resolve(#) reply", "persist(@a) resolve(#) reply", "resolve(#)",
	"resolve(#) persist(?)", "persist(@a) resolve(#) panic", "persist(@a) resolve(#) persist(@b)", "resolve(#) then(@1){panic}",
}

// deferring are commands with asynchronous callbacks. If an earlier write has an unknown outcome,
// timing decides whether a callback runs.
var deferring = []string{
	"thenasync(@1){request(@1)} reply", "thenasync(@1){request(@1)} thenasync(@2){request(@2)} noreply",
	"persist(@a) thenasync(@1){request(@1)}", "then(@1){persist(@a)} persist(@b) then(@2){persist(@c) reply}",
}

// nesting are commands whose callbacks may run after later commands.
var nesting = []string{
	"persist(@a) thenasync(@1){request(@1) then(@2){reply}}", "persist(@a) thenasync(@1){reply}",
	"thenasync(@1){persist(@a,@b) persist(@c)}", "thenasync(@1){reply}", "thenasync(@1){save}", "thenasync(@1){persist(@a) save persist(@b) reply}", "save reply",
	"thenasync(@1){persist(@a) reply}", "thenasync(@1){stop}", "thenasync(@1){thenasync(@2){unstash}}",
}

// stopping are commands that end the instance.
var stopping = []string{"stop", "persist(@a) stop reply", "persist(@a) then(@1){stop} reply"}

// simulate runs all seeds, and each fourth seed twice: both runs must have the same trace.
func simulate(t *testing.T, run func(seed uint64) *simulation, wanted ...string) {
	t.Helper()
	if *seedFlag >= 0 {
		s := run(uint64(*seedFlag))
		t.Logf("%s\n%s", s.trace.String(), strings.Join(s.failures, "\n"))
		if len(s.failures) > 0 {
			t.Fail()
		}
		return
	}
	hits := make(map[string]int)
	failed := 0
	for seed := range cmp.Or(*seedsFlag, effort.Count[uint64](600, 2_000, 100_000)) {
		s := run(seed)
		if !s.cfg.SharedIsZero() {
			s.errorf("a machine has changed fields that all machines share")
		}
		for k, n := range s.hits {
			hits[k] += n
		}
		if seed%4 == 0 && run(seed).trace.String() != s.trace.String() {
			s.errorf("two runs of the same seed have different traces")
		}
		if len(s.failures) == 0 {
			continue
		}
		t.Errorf("seed %d: %s\nreplay with: go test ./internal/engine -run '^%s$' -v -sim.seed=%d",
			seed, strings.Join(s.failures, "\n"), t.Name(), seed)
		if failed++; failed == 5 {
			break
		}
	}
	for _, k := range wanted {
		if hits[k] == 0 && failed == 0 {
			t.Errorf("no seed covered %q, want at least one", k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(hits)) {
		t.Logf("%8d %s", hits[k], k)
	}
}

// TestLikeReference compares a machine with a reference that handles one command after the other.
// The machine may be pipelined, and its journal fails at random. The same commands must cause the
// same replies, callbacks, requests and events in both.
func TestLikeReference(t *testing.T) {
	t.Parallel()
	simulate(t, func(seed uint64) *simulation {
		s := newSimulation(seed)
		kinds := everyday
		if s.chance(50) {
			kinds = slices.Concat(kinds, stashing, stashing)
		} else if s.chance(50) {
			kinds = slices.Concat(kinds, stopping)
		}
		if s.chance(30) {
			s.async = true
			kinds = slices.Concat(kinds, []string{"async(@a) reply", "async(@a) noreply", "persist(@a) async(@b) reply", "async(@a) thenasync(@1){request(@1)} noreply"})
		}
		fates := []fate{fateRejected, fateConflict, fateNotSent, fateLost, fateUnavailable}
		if s.chance(30) {
			kinds = slices.Concat(kinds, deferring)
		} else {
			fates = append(fates, fateLanded, fateLanded)
		}
		s.generate(1+s.rng.IntN(30), kinds)
		s.assignFates(fates...)
		r := &reference{fates: maps.Clone(s.fates)}
		if s.cfg.Signals {
			r.signals = s.signals
		}
		s.run()
		r.run(s.commands)
		s.compare(r)
		return s
	}, "fence stored", "fence lost", "fence late", "fence landed, unknown", "probe finds 0", "probe finds 1", "probe finds own", "late write refused", "snapshot", "back-off", "stopped")
}

// assignFates assigns a fate to some events: the outcome of the write that stores the event.
func (s *simulation) assignFates(fates ...fate) {
	percent := s.rng.IntN(40)
	for _, m := range s.commands {
		for _, x := range "abcd" {
			if s.chance(percent) && !strings.Contains(format(m.acts), "async(") {
				s.fates[fmt.Sprintf("%s.%c", m.name, x)] = fates[s.rng.IntN(len(fates))]
			}
		}
	}
}

// compare compares a run with the reference.
func (s *simulation) compare(r *reference) {
	for _, m := range s.commands {
		if got, want := s.answers[m.name], r.answers[m.name]; got != want {
			s.errorf("the reply to %s is %q, want %q: %s", m.name, got, want, format(m.acts))
		}
	}
	if got := s.disk.events(); !slices.Equal(got, r.journal) {
		s.errorf("the journal holds\n\t%q, want\n\t%q", got, r.journal)
	}
	if !slices.Equal(s.ran, r.calls) {
		s.errorf("callbacks ran\n\t%q, want\n\t%q", s.ran, r.calls)
	}
	if !slices.Equal(s.asked, r.asked) {
		s.errorf("requests were executed\n\t%q, want\n\t%q", s.asked, r.asked)
	}
}

// TestChaos adds faults whose outcome no reference can predict: crashes, writes that are stored
// late, callers that leave, deletions, and two machines that write to the same journal. The replies
// must still agree with the journal.
func TestChaos(t *testing.T) {
	t.Parallel()
	simulate(t, func(seed uint64) *simulation {
		s := newSimulation(seed)
		s.chaos = true
		s.signals["farewell"] = parse("persist(bye) save then(bye){persist(gone)}")
		kinds := slices.Concat(everyday, stashing, stopping, deferring, nesting)
		if s.chance(30) {
			s.async = true
			kinds = append(kinds, "async(@a) reply", "async(@a) noreply", "persist(@a) async(@b) reply")
		}
		s.generate(1+s.rng.IntN(40), kinds)
		s.assignFates(fateRejected, fateConflict, fateNotSent, fateLost, fateLanded, fateUnavailable, fateLate, fateLate, fateLate)
		s.run()
		s.checkAnswers()
		return s
	}, "crash", "caller left", "late write landed", "late write refused", "fence stored", "probe finds 2", "farewell", "probe finds a deletion", "answer unknown")
}

// TestShared runs two or more machines with Config.Shared over one journal. No reply may be stale, also
// while writes are lost and machines crash, and a conflict is answered only after many attempts.
func TestShared(t *testing.T) {
	t.Parallel()
	simulate(t, func(seed uint64) *simulation {
		s := newSimulation(seed)
		s.chaos, s.cfg.Shared = true, true
		s.signals["farewell"] = parse("persist(bye) save")
		kinds := everyday
		if s.chance(50) {
			kinds = slices.Concat(kinds, stashing, stopping)
		}
		s.generate(20+s.rng.IntN(40), slices.Concat(kinds, slices.Repeat([]string{"reply", "persist(@a) reply"}, 10)))
		if s.chance(50) {
			s.assignFates(fateRejected, fateConflict, fateNotSent, fateLost, fateLanded, fateUnavailable, fateLate)
		}
		s.run()
		s.checkAnswers()
		for _, m := range s.commands {
			if s.plain[m.name] && s.answers[m.name] == "error conflict" {
				s.errorf("the reply to %s is a conflict: %s", m.name, format(m.acts))
			}
		}
		return s
	}, "crash", "late write landed", "fence stored", "probe finds 2", "refresh finds events", "probe finds a deletion", "answer unknown")
}

// checkAnswers compares the answers with the final content of the journal.
func (s *simulation) checkAnswers() {
	seen := make(map[string]bool)
	stored := make(map[string]bool)
	for _, e := range s.disk.events() {
		name := commandOf(e)
		if strings.HasPrefix(name, "c") && seen[e] {
			s.errorf("%s is stored twice", e)
		}
		seen[e], stored[name] = true, true
	}
	for _, m := range s.commands {
		answer, answered := s.answers[m.name]
		switch {
		case !answered:
			if !strings.Contains(format(m.acts), "noreply") {
				s.errorf("%s got no reply: %s", m.name, format(m.acts))
			}
		case strings.HasPrefix(answer, "error partly") || answer == "error unknown" || strings.HasPrefix(answer, "error no reply") ||
			answer == "error refused": // the aggregate itself refused the command
		case strings.HasPrefix(answer, "error"):
			if stored[m.name] {
				s.errorf("%s is stored, but its reply is %q: %s", m.name, answer, format(m.acts))
			}
		case !s.async:
			for e := range strings.FieldsSeq(answer) {
				if !seen[e] {
					s.errorf("the reply to %s is %q, but %s is not stored", m.name, answer, e)
				}
			}
		}
	}
}
