// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"time"

	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/procload"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// loadMeter measures the load of the shards of this node for a strategy that reads it. The turns of
// entities count in the meters; the loop reads them.
type loadMeter struct {
	shardOf func(id string) (Shard, error)
	meters  []hosting.Meter // by shard

	// The following fields belong to the loop.
	interval time.Duration
	at       time.Duration  // time of the next report
	last     time.Duration  // time of the last report
	read     []meterReading // the meters at the last report
	rates    []float64      // commands per second before the last report, nil before the first one
	process  procload.Usage
}

type meterReading struct {
	busy    int64
	handled uint64
}

// Limits of the interval between reports. A report is due in each RebalanceInterval.
const (
	minReportInterval = time.Second
	maxReportInterval = 10 * time.Second
)

// readsLoad reports whether a strategy reads View.Load.
func readsLoad(s Strategy) bool {
	var by any = s
	if pure, ok := s.(pureStrategy); ok {
		by = pure.by
	}
	reader, ok := by.(interface{ ReadsLoad() bool })
	return ok && reader.ReadsLoad()
}

func newLoadMeter(s *shell) *loadMeter {
	interval := min(max(s.opts.Tuning.RebalanceInterval, minReportInterval), maxReportInterval)
	return &loadMeter{
		shardOf: s.shardOf, meters: make([]hosting.Meter, s.opts.Shards), read: make([]meterReading, s.opts.Shards),
		interval: interval, at: s.now() + interval, last: s.now(), process: procload.Read(),
	}
}

// of returns the meter of an entity. It is called in each turn.
func (l *loadMeter) of(id string) *hosting.Meter {
	n, err := l.shardOf(id)
	if err != nil {
		return nil
	}
	return &l.meters[n]
}

// report returns the load since the last report.
func (l *loadMeter) report(now time.Duration) coordinator.Load {
	process := procload.Read()
	load := coordinator.Load{Window: now - l.last, CPU: process.CPU - l.process.CPU, Cores: process.Cores, Memory: process.Memory}
	l.process, l.last, l.at = process, now, now+l.interval
	if l.rates == nil {
		l.rates = make([]float64, len(l.meters))
	}
	for n := range l.meters {
		m, last := &l.meters[n], &l.read[n]
		next := meterReading{m.Busy.Load(), m.Handled.Load()}
		queued := m.Queued.Load()
		l.rates[n] = 0
		if load.Window > 0 {
			l.rates[n] = float64(next.handled-last.handled) / load.Window.Seconds()
		}
		if next != *last || queued > 0 {
			load.Shards = append(load.Shards, coordinator.ShardLoad{
				Shard: Shard(n), Busy: time.Duration(next.busy - last.busy), Commands: next.handled - last.handled, Waiting: int(max(0, queued)),
			})
		}
		*last = next
	}
	return load
}

// addRates sets the rates of commands of hosted shards, if they are known. The loop calls it.
func (l *loadMeter) addRates(counts []ShardCount) {
	if l == nil || l.rates == nil {
		return
	}
	for i := range counts {
		rate := l.rates[counts[i].Shard]
		counts[i].PerSecond = &rate
	}
}

// reportLoad sends the load of this node to the coordinator when it is due, and returns the time of
// the next report.
func (s *shell) reportLoad(now time.Duration) (next time.Duration) {
	if s.loadMeter == nil {
		return shardcore.Never
	}
	if now >= s.loadMeter.at {
		s.step(shardcore.ReportLoad{Load: s.loadMeter.report(now)})
	}
	return s.loadMeter.at
}
