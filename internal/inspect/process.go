// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/projection"
)

// Projection is a *projection.Projection.
type Projection interface {
	Name() string
	Status() projection.Status
	Paused() bool
	// CanRebuild reports whether Rebuild is possible.
	CanRebuild() bool
	Pause(ctx context.Context) error
	Resume()
	Rebuild(ctx context.Context) error
}

// projection answers a request for projections.
func (s *Server) projection(ctx context.Context, r *request) (*Projections, error) {
	if r.Command == cmdStatus && r.Name == "" {
		return s.describe(s.cfg.Projections), nil
	}
	i := slices.IndexFunc(s.cfg.Projections, func(p Projection) bool { return p.Name() == r.Name })
	if i < 0 {
		return nil, fmt.Errorf("%w: projection %.255q", ErrNotFound, r.Name)
	}
	p, err := s.cfg.Projections[i], error(nil)
	switch r.Command {
	case cmdPause:
		err = p.Pause(ctx)
	case cmdResume:
		p.Resume()
	case cmdRebuild:
		err = p.Rebuild(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s.describe(s.cfg.Projections[i : i+1]), nil
}

// maxWorkers is the number of workers of a projection in a reply.
const maxWorkers = 64

func (s *Server) describe(projections []Projection) *Projections {
	out := &Projections{}
	left := pageBytes
	for _, p := range projections {
		st := p.Status()
		v := ProjectionView{
			Name: p.Name(), State: st.State.String(), Paused: p.Paused(), Handled: st.Handled, Skipped: st.Skipped, Retries: st.Retries, Restarts: st.Restarts,
			Lag: st.Lag, LagUnknownSince: st.LagUnknownSince, CaughtUp: st.CaughtUp, Failure: s.failure(st.Err), Failures: st.Failures, NextTry: st.NextTry,
			Rebuilds: p.CanRebuild(),
		}
		for i := range st.Workers[:min(len(st.Workers), maxWorkers)] {
			w := &st.Workers[i]
			v.Workers = append(v.Workers, WorkerView{
				Slices: w.Slices.String(), State: w.State.String(), Offset: w.Offset, LastEvent: w.LastEvent, Handled: w.Handled, Skipped: w.Skipped,
				Lag: w.Lag, LagUnknownSince: w.LagUnknownSince, CaughtUp: w.CaughtUp, Failure: s.failure(w.Err), Failures: w.Failures, NextTry: w.NextTry,
			})
		}
		if left -= 1024 + len(v.Workers)*2048; left < 0 { // hundreds of workers: the projection counts them
			v.Workers = nil
		}
		out.Projections = append(out.Projections, v)
	}
	slices.SortFunc(out.Projections, func(a, b ProjectionView) int { return strings.Compare(a.Name, b.Name) })
	out.Projections = out.Projections[:min(len(out.Projections), 100)]
	return out
}

// failure describes an error of a projection, nil for none.
func (s *Server) failure(err error) *FailureView {
	if err == nil {
		return nil
	}
	v := &FailureView{}
	if e, ok := errors.AsType[*projection.EventError](err); ok {
		v.ID, v.Nr, v.Manifest, v.Offset, v.Undecodable = cut(e.ID, 2*maxTag), e.SequenceNr, cut(e.Manifest, maxTag), e.Offset, e.Undecodable
		if s.cfg.Redact != nil { // the text of the cause may quote a field
			v.Text = "the event cannot be handled"
			return v
		}
	}
	v.Text = cut(panics.Safe(err).Error(), maxText/2)
	return v
}

// versions returns the versions of the program's main module and of Refold, as far as they are
// known.
func versions() (program, refold string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", ""
	}
	return info.Main.Version, RefoldVersion(info)
}

// runtime describes the process.
func (s *Server) runtime() *RuntimeView {
	v := &RuntimeView{
		Started: s.started, Uptime: time.Since(s.started), Version: s.version, Refold: s.refold, Go: runtime.Version(), Goroutines: runtime.NumGoroutine(), CPUs: runtime.GOMAXPROCS(0),
	}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(samples)
	v.Heap, v.Memory = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	if s.cfg.Meter != nil {
		load := s.cfg.Meter.Load()
		v.Load = &load
	}
	if s.cfg.Runtime == nil {
		return v
	}
	v.Hosts = true
	in := hosting.InspectorOf(s.cfg.Runtime)
	v.JournalBreakerOpen, v.SnapshotBreakerOpen = in.BreakersOpen()
	waiting := in.Waiting()
	for _, w := range waiting[:min(len(waiting), maxTypes)] {
		v.Entities = append(v.Entities, EntityFigures{Type: w.Type, Resident: w.Resident, Inbox: w.Inbox, Stash: w.Stash})
	}
	return v
}

// Meter measures the commands of a runtime. The zero value is ready to use.
type Meter struct {
	commands, failed, dropped atomic.Uint64

	mu      sync.Mutex
	since   time.Time // start of the current window
	before  window    // the previous one
	length  time.Duration
	current window
}

// window counts the commands of a period by latency. The bucket of a latency is its power of two
// with two further bits: a quantile is exact to 25 %.
type window struct {
	commands atomic.Uint64
	buckets  [latencyBuckets]atomic.Uint64
}

const (
	windowLength   = 10 * time.Second
	latencyBuckets = 64 * 4
)

// Observer returns the observer for eventsourcing.Config.Observer, or for eventsourcing.Tee with
// others.
func (m *Meter) Observer() eventsourcing.Observer {
	return eventsourcing.Observer{
		Command: func(i eventsourcing.CommandInfo) {
			m.commands.Add(1)
			if i.Err != nil {
				m.failed.Add(1)
			}
			m.current.commands.Add(1)
			m.current.buckets[bucketOf(i.Duration)].Add(1)
		},
		Dropped: func(eventsourcing.DroppedInfo) { m.dropped.Add(1) },
	}
}

// bucketOf returns the bucket of a latency.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	power := bits.Len64(n)
	if power <= 3 {
		return int(n) //nolint:gosec // at most 7
	}
	return power<<2 | int(n>>(power-3)&3)
}

// latencyOf returns the upper bound of a bucket.
func latencyOf(bucket int) time.Duration {
	if bucket < 8 {
		return time.Duration(bucket)
	}
	power := bucket >> 2
	return time.Duration((uint64(bucket&3)+5)<<(power-3) - 1) //nolint:gosec // below 2^63 for latencies of commands
}

// Load returns the load. Totals are exact. Rates and latencies are those of the current window and
// the one before it. Windows advance when Load is called, so a caller polls it.
func (m *Meter) Load() Load {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.since.IsZero() {
		m.since = now
	}
	if age := now.Sub(m.since); age >= windowLength {
		m.length, m.since = age, now
		m.before.commands.Store(m.current.commands.Swap(0))
		for i := range m.current.buckets {
			m.before.buckets[i].Store(m.current.buckets[i].Swap(0))
		}
	}
	load := Load{Commands: m.commands.Load(), Failed: m.failed.Load(), Dropped: m.dropped.Load()}
	var counts [latencyBuckets]uint64
	total := uint64(0)
	for i := range counts {
		counts[i] = m.before.buckets[i].Load() + m.current.buckets[i].Load()
		total += counts[i]
	}
	if period := m.length + now.Sub(m.since); period > 0 {
		load.PerSecond = float64(m.before.commands.Load()+m.current.commands.Load()) / period.Seconds()
	}
	quantile := func(share float64) time.Duration {
		rest := uint64(share * float64(total))
		for i, n := range counts {
			if rest < n {
				return latencyOf(i)
			}
			rest -= n
		}
		return 0
	}
	if total > 0 {
		load.P50, load.P99 = quantile(0.5), quantile(0.99)
	}
	return load
}

// verifying is the verification of a journal, which runs in the background.
type verifying struct {
	mu     sync.Mutex
	state  Verification
	cancel context.CancelFunc // nil unless it runs
	done   chan struct{}
}

// errStopped is the cause of a verification that an operator stopped.
var errStopped = errors.New("inspect: the verification was stopped")

// wait waits until no verification runs.
func (v *verifying) wait() {
	v.mu.Lock()
	done := v.done
	v.mu.Unlock()
	if done != nil {
		<-done
	}
}

// verification answers the requests about the verification.
func (s *Server) verification(command string) (*Verification, error) {
	v := &s.verifying
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case command == cmdVerifyStop && v.cancel != nil:
		v.cancel()
	case command == cmdVerifyStart && v.state.Running:
		return nil, ErrRunning
	case command == cmdVerifyStart && s.ctx.Err() != nil:
		return nil, ErrNoService
	case command == cmdVerifyStart:
		ctx, cancel := context.WithCancelCause(s.ctx)
		v.state = Verification{Running: true, Started: time.Now(), ByType: map[string]TypeCount{}}
		v.cancel, v.done = func() { cancel(errStopped) }, make(chan struct{})
		go s.runVerification(ctx, v.done)
	}
	out := v.state
	out.ByType, out.Problems = maps.Clone(out.ByType), slices.Clone(out.Problems)
	return &out, nil
}

// maxProblems is the number of listed problems and of types in a Verification.
const maxProblems = 100

func (s *Server) runVerification(ctx context.Context, done chan struct{}) {
	defer close(done)
	v := &s.verifying
	records := uint64(0)
	show := func(r *Report) { // v.mu is locked
		v.state.IDs, v.state.Records, v.state.Snapshots, v.state.Omitted = r.IDs, r.Records, r.Snapshots, r.Omitted
		for _, p := range r.Problems[min(len(v.state.Problems), len(r.Problems)):] {
			text := "the stored data is faulty"
			if s.cfg.Redact == nil { // the text may quote a field
				text = cut(panics.Safe(p.Err).Error(), maxText)
			}
			v.state.Problems = append(v.state.Problems, ProblemView{ID: cut(p.ID, 2*maxTag), Nr: p.SequenceNr, Text: text})
		}
	}
	var report Report
	err := panics.Catch(func() (err error) {
		report, err = Verify(ctx, s.journal, VerifyOptions{
			Snapshots: s.snapshots, Types: s.cfg.Types, MaxProblems: maxProblems,
			Progress: func(id string, sofar *Report) {
				v.mu.Lock()
				defer v.mu.Unlock()
				name := s.idView(id).Type
				if c, known := v.state.ByType[name]; known || len(v.state.ByType) < maxProblems {
					v.state.ByType[name] = TypeCount{c.IDs + 1, c.Records + sofar.Records - records}
				}
				records = sofar.Records
				show(sofar)
			},
		})
		return err
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	show(&report)
	v.state.Running, v.state.Ended, v.cancel = false, time.Now(), nil
	if err != nil {
		v.state.Failure = cut(panics.Safe(err).Error(), maxText)
	}
}

// RefoldPath is the path of this module.
const RefoldPath = "github.com/refold-io/refold"

// RefoldVersion returns the version of this module in a program, "" if it is unknown.
func RefoldVersion(info *debug.BuildInfo) string {
	if info.Main.Path == RefoldPath {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == RefoldPath {
			return d.Version
		}
	}
	return ""
}
