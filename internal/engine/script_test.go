// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

// TestScripts runs the scripts in testdata. Each file drives one machine with one disk; script.do
// lists the commands. Rewrite the expected output with go test -rewrite, and review the difference.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			if d.Cmd == "entity" {
				s = newScript(t, d)
				return "ok"
			}
			s.t = t
			return s.do(d)
		})
	})
}

// farewell is the signal of the commands idle and drain.
type farewell struct{}

// script is a machine with its disk, driven line by line.
type script struct {
	t        *testing.T
	cfg      engine.Config
	machine  engine.Machine
	agg      aggregate
	out      engine.Effects
	now      time.Time
	disk     disk
	sent     []*engine.Step  // handed out and not answered
	lost     []journal.Write // may still land
	saves    []*engine.State // awaited by the machine and not answered
	fence    *journal.Write
	probe    uint64
	writers  int
	printed  strings.Builder
	recovery bool
}

func newScript(t *testing.T, d *datadriven.TestData) *script {
	t.Helper()
	s := &script{t: t, now: time.Unix(1000, 0).UTC()}
	s.agg = aggregate{calls: make(map[string]*caller), signals: make(map[string][]act), trace: s.printf}
	s.cfg = engine.Config{
		StashCapacity: 100, MaxPending: 100, MinBackoff: 3 * time.Second, MaxBackoff: 30 * time.Second,
		BackoffStash: 1000, PanicLimit: 5, PanicWindow: 10 * time.Second,
	}
	number := map[string]*int{"stash": &s.cfg.StashCapacity, "pending": &s.cfg.MaxPending, "backoff-stash": &s.cfg.BackoffStash}
	snapshots := map[string]*uint64{"every": &s.cfg.SnapshotEvery, "keep": &s.cfg.KeepSnapshots}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "sequential":
			s.cfg.Sequential = true
		case "signals":
			s.cfg.Signals = true
		case "overflow":
			switch arg.Vals[0] {
			case "fail":
				s.cfg.Overflow = engine.OverflowFail
			}
		case "jitter":
			s.cfg.Jitter = 0.2
		default:
			if p := number[arg.Key]; p != nil {
				d.ScanArgs(t, arg.Key, p)
			} else {
				d.ScanArgs(t, arg.Key, snapshots[arg.Key])
			}
		}
	}
	s.machine.Init(&s.cfg, &s.agg, "script|1")
	return s
}

func (s *script) printf(format string, args ...any) {
	fmt.Fprintf(&s.printed, format+"\n", args...)
}

// do runs one command:
//
//	deliver         one message per line of the input: "name: acts"
//	on              sets the acts for a signal: "PersistFailed: acts"
//	stored [n]      the oldest n units are stored, all units if n is missing
//	failed how      the oldest unit is not stored: lost, unavailable, rejected, conflict, not-sent, skipped
//	land            stores the lost writes now
//	foreign [n]     another incarnation writes n events, one if n is missing
//	delete [n]      another incarnation deletes the records up to n, all records if n is missing
//	fenced [how]    the fence is answered, by the disk if how is missing
//	probed [fails]  the probe is answered from the disk
//	recovered [fails] [replayed=n]
//	wait duration   time passes
//	woken, saved, idle [farewell], drain [farewell], kill, block, unblock
//	leave name      a caller stops waiting
//	disk            prints the stored records
//	state           prints the state of the machine
func (s *script) do(d *datadriven.TestData) string {
	s.printed.Reset()
	switch d.Cmd {
	case "deliver":
		for line := range strings.Lines(d.Input) {
			name, acts, _ := strings.Cut(strings.TrimSpace(line), ":")
			c := newCaller(message{name, parse(acts)})
			s.agg.calls[name] = c
			s.step(engine.Input{Kind: engine.Deliver, Env: &c.env})
		}
	case "on":
		for line := range strings.Lines(d.Input) {
			name, acts, _ := strings.Cut(strings.TrimSpace(line), ":")
			s.agg.signals[name] = parse(acts)
		}
	case "leave":
		s.agg.calls[d.CmdArgs[0].Key].leave()
	case "disk":
		for i, r := range s.disk {
			if !r.deleted {
				s.printf("%d %s by %s", i+1, or(r.name, "fence"), r.writer)
			}
		}
	case "state":
		s.printf("resting %t, at %d, durable %d", s.machine.Resting(), s.machine.SequenceNr(), s.machine.DurableNr())
	case "block":
		s.machine.Block(true)
	case "unblock":
		s.machine.Block(false)
		s.step(engine.Input{Kind: engine.Continue})
	case "wait":
		pause, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		s.now = s.now.Add(pause)
	case "saved":
		saved := s.saves[0]
		s.saves = s.saves[1:]
		s.step(engine.Input{Kind: engine.Saved, Saved: saved})
	case "idle", "drain", "kill", "woken":
		kind := map[string]engine.InputKind{"idle": engine.Idle, "drain": engine.Drain, "kill": engine.Kill, "woken": engine.Woken}
		in := engine.Input{Kind: kind[d.Cmd]}
		if d.HasArg("farewell") {
			in.Env = &engine.Envelope{Message: farewell{}, Signal: true}
		}
		s.step(in)
	default:
		s.journal(d)
	}
	if s.printed.Len() == 0 {
		return "nothing"
	}
	return s.printed.String()
}

// journal runs the commands about the journal.
func (s *script) journal(d *datadriven.TestData) {
	how := ""
	if len(d.CmdArgs) > 0 {
		how = d.CmdArgs[0].Key
	}
	switch d.Cmd {
	case "stored":
		n := s.number(d, len(s.sent))
		for _, u := range s.sent[:n] {
			if err := s.disk.append(u.Request.Write); err != nil {
				d.Fatalf(s.t, "%v", err)
			}
		}
		s.sent = s.sent[n:]
		s.step(engine.Input{Kind: engine.Stored, N: n})
	case "failed":
		u := s.sent[0]
		s.sent = s.sent[1:]
		err := failure(how)
		if !journal.NotStored(err) {
			s.lost = append(s.lost, u.Request.Write)
		}
		s.step(engine.Input{Kind: engine.NotStored, Err: err})
	case "land":
		for _, w := range s.lost {
			if err := s.disk.append(w); err != nil {
				s.printf("%d refused", w.Expect+1)
				break // the later ones of the same call are skipped
			}
			s.printf("%d landed", w.Expect+1)
		}
		s.lost = nil
	case "foreign":
		for range s.number(d, 1) {
			s.disk = append(s.disk, record{name: "foreign", writer: "other"})
		}
	case "delete":
		s.disk.deleteTo(s.number(d, len(s.disk)))
	case "fenced":
		var err error
		if how == "" || how == "landed" {
			err = s.disk.append(*s.fence)
		}
		if how == "late" {
			s.lost = append(s.lost, *s.fence)
		}
		if how != "" {
			err = failure(how)
		}
		s.step(engine.Input{Kind: engine.Fenced, Err: err})
	case "probed":
		in := s.disk.probe(s.probe, s.machine.Writer())
		if how != "" {
			in = engine.Input{Kind: engine.Probed, Err: failure(how)}
		}
		s.step(in)
	case "recovered":
		s.recovered(d)
	default:
		d.Fatalf(s.t, "no such command: %s", d.Cmd)
	}
}

// number returns the argument of a command, or n if it is missing.
func (s *script) number(d *datadriven.TestData, n int) int {
	if len(d.CmdArgs) > 0 {
		if _, err := fmt.Sscan(d.CmdArgs[0].Key, &n); err != nil {
			d.Fatalf(s.t, "%v", err)
		}
	}
	return n
}

func (s *script) recovered(d *datadriven.TestData) {
	var replayed uint64
	d.MaybeScanArgs(s.t, "replayed", &replayed)
	if !s.recovery {
		s.printf("no recovery was requested")
		return
	}
	s.recovery = false
	if d.HasArg("fails") {
		s.step(engine.Input{Kind: engine.Recovered, Err: errLost})
		return
	}
	s.writers++
	s.agg.state = s.disk.events()
	s.step(engine.Input{Kind: engine.Recovered, Recovery: engine.Recovery{
		SequenceNr: uint64(len(s.disk)), Time: s.now, Replayed: replayed, Writer: fmt.Sprintf("w%d", s.writers),
	}})
}

func failure(how string) error {
	switch how {
	case "unavailable":
		return errUnavailable
	case "rejected":
		return &journal.RejectedError{Reason: errors.New("too large")}
	case "conflict":
		return &journal.ConflictError{}
	case "not-sent":
		return journal.ErrNotSent
	case "skipped":
		return journal.ErrSkipped
	default:
		return errLost
	}
}

func (s *script) step(in engine.Input) {
	for {
		s.out.Reset()
		s.machine.Step(s.now, in, &s.out)
		s.print()
		if !s.out.More {
			return
		}
		in = engine.Input{Kind: engine.Continue}
	}
}

// print prints effects in the order in which they are carried out.
func (s *script) print() {
	o := &s.out
	for _, u := range o.Append {
		s.sent = append(s.sent, u)
		w := u.Request.Write
		names := make([]string, len(w.Events))
		for i, e := range w.Events {
			names[i] = string(e.Payload)
		}
		s.printf("append %d %s", w.Expect+1, strings.Join(names, " "))
	}
	if o.Fence != nil {
		s.fence = o.Fence
		s.printf("fence %d", o.Fence.Expect+1)
	}
	if o.Probe != 0 {
		s.probe = o.Probe
		s.printf("probe %d", o.Probe)
	}
	if o.Durable != 0 {
		s.printf("durable %d", o.Durable)
	}
	for _, a := range o.Answers {
		name := signalName(a.Env.Message)
		if m, ok := a.Env.Message.(message); ok {
			name = m.name
		}
		if a.Err != nil {
			s.printf("answer %s: error %v", name, describe(a.Err))
			continue
		}
		s.printf("answer %s: %v", name, a.Value)
	}
	for _, r := range o.Requests {
		s.printf("request %v", r)
	}
	for _, st := range o.Save {
		line := fmt.Sprintf("save %d [%s]", st.SequenceNr, st.Payload)
		if st.Retain > 0 {
			line += fmt.Sprintf(" retain %d", st.Retain)
		}
		if st.Awaited {
			s.saves = append(s.saves, st)
		}
		s.printf("%s", line)
	}
	if o.Cause != nil {
		s.printf("cause %s", describe(o.Cause))
	}
	if o.Stopped {
		s.printf("stopped")
	}
	if o.Recover {
		s.recovery = true
		s.printf("recover")
	}
	if o.Wake > 0 {
		s.printf("wake %v", o.Wake)
	}
	if o.More {
		s.printf("more")
	}
}

// describe names the errors that an error matches.
func describe(err error) string {
	var names []string
	for _, known := range []struct {
		err  error
		name string
	}{
		{engine.ErrNoReply, "no reply"},
		{engine.ErrUnhandled, "unhandled"},
		{engine.ErrStashFull, "stash full"},
		{engine.ErrStopped, "stopped"},
		{engine.ErrNotStored, "not stored"},
		{engine.ErrPartlyStored, "partly stored"},
		{engine.ErrOutcomeUnknown, "unknown"},
		{journal.ErrConflict, "conflict"},
		{journal.ErrRejected, "rejected"},
		{journal.ErrSkipped, "skipped"},
		{journal.ErrNotSent, "not sent"},
		{journal.ErrUnavailable, "unavailable"},
		{errLost, "lost"},
		{errPanic, "panic"},
		{errRefused, "refused"},
	} {
		if errors.Is(err, known.err) {
			names = append(names, known.name)
		}
	}
	if _, ok := errors.AsType[*engine.RecoveryFailed](err); ok {
		names = append([]string{"recovery failed"}, names...)
	}
	if len(names) == 0 {
		return err.Error()
	}
	return strings.Join(names, ", ")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
