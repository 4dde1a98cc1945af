// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench contains the benchmarks of "refold bench" and the demonstration of "refold demo".
// Nodes run in worker processes, which execute orders of the parent process. Most benchmarks
// measure two figures alternately in one run: the figure of Refold, and its limit, which is the
// figure without Refold. They print the ratio of the two with its goal:
//
//	limit ── refold ── limit ── refold ── … ── medians ── ratio ── goal met?
//
// Absolute figures describe the machine, ratios describe Refold.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/eventsourcing"
)

// Result is one figure with its goal.
type Result struct {
	Group   string  `json:"group"`
	Name    string  `json:"name"`
	Journal string  `json:"journal"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	// Limit is the figure without Refold in the same run, or 0 if there is none.
	Limit float64 `json:"limit"`
	Ratio float64 `json:"ratio"`
	Goal  float64 `json:"goal"`
	// Better is "higher" or "lower".
	Better string `json:"better"`
	// Met is nil if the row has no verdict, or if the figure is not valid on this machine.
	Met      *bool  `json:"met"`
	Settings string `json:"settings"`
	// Detail is additional text, such as percentiles.
	Detail string `json:"detail,omitempty"`
}

func (r Result) of(value, limit float64) Result {
	r.Value, r.Limit, r.Ratio = value, limit, value/limit
	return r.judge()
}

func (r Result) judge() Result {
	met := r.Ratio >= r.Goal
	if r.Better == lower {
		met = r.Ratio <= r.Goal
	}
	r.Met = &met
	return r
}

// atMost returns a result without a limit figure. The goal is the upper bound of the value.
func atMost(value float64, unit string, goal float64, settings, detail string) Result {
	return Result{Value: value, Unit: unit, Ratio: value, Goal: goal, Better: lower, Settings: settings, Detail: detail}.judge()
}

const (
	higher = "higher"
	lower  = "lower"
)

// Settings are the parameters of a run.
type Settings struct {
	// Journal is "inmem:", "leveldb:", "leveldb:DIR", "postgres:" for a private server, a
	// connection string, or "nats:" for rows with a NATS server and without a journal. The empty
	// text selects all journals that a row supports, but PostgreSQL only for rows that start a
	// private server.
	Journal string
	// Rounds is the number of measurements per side, at least 1.
	Rounds int
	// Length is the duration of one throughput measurement.
	Length time.Duration
	// Scale divides the sizes of data sets, for tests. At least 1.
	Scale int
	// Worker is the command, with arguments, that runs ServeWorker.
	Worker []string
	// Runs is the number of repetitions of operations that take minutes, such as killing a node. At
	// least 1.
	Runs int
	// Entities is the number of entities of shard-standby. At least 100.
	Entities int
	// Progress receives the name of the current measurement.
	Progress func(subject string)
}

// Row is one benchmark.
type Row struct {
	Group, Name string
	// Journals are the supported schemes. The scheme postgres runs if it is requested or if private
	// is set.
	Journals []string
	run      func(ctx context.Context, b *run) ([]Result, error)
	// private starts a private server if no journal was requested.
	private bool
}

// Rows returns all benchmarks in their order of execution.
func Rows() []Row {
	leveldb, inmem, nats, postgres := []string{"leveldb"}, []string{"inmem"}, []string{"nats"}, []string{"postgres"}
	stored := []string{"leveldb", "postgres"}
	return []Row{
		{"persistence", "persist", []string{"leveldb", "inmem", "postgres"}, persist, false},
		{"persistence", "ask", inmem, asks, false},
		{"persistence", "retention", []string{"leveldb", "inmem", "postgres"}, retention, false},
		{"persistence", "hot", stored, hot, false},
		{"persistence", "latency", stored, latency, false},
		{"persistence", "recover", stored, recoverEvents, false},
		{"persistence", "live", postgres, live, false},
		{"persistence", "projection", postgres, project, false},
		{"persistence", "snapshot-recover", leveldb, recoverSnapshot, false},
		{"persistence", "resident", inmem, resident, false},
		{"persistence", "wake", inmem, wake, false},
		{"cluster", "transport", nats, transports, false},
		{"cluster", "nodes", nats, processes, false},
		{"ddata", "ddata-local", inmem, dataLocal, false},
		{"ddata", "ddata-wire", inmem, dataWire, false},
		{"ddata", "ddata-memory", inmem, dataMemory, false},
		{"ddata", "ddata-idle", inmem, dataIdle, false},
		{"ddata", "ddata-visible", nats, dataVisible, false},
		{"ddata", "ddata-update", nats, dataUpdate, false},
		{"ddata", "ddata-join", nats, dataJoin, false},
		{"sharding", "shard-ask", nats, shardAsks, false},
		{"sharding", "shard-place", []string{"leveldb", "inmem", "nats"}, shardPlace, false},
		{"sharding", "shard-load", inmem, shardLoad, false},
		{"sharding", "shard-move", postgres, shardMove, true},
		{"sharding", "shard-failover", nats, shardFailover, false},
		{"sharding", "shard-kill", postgres, shardKill, true},
		{"sharding", "shard-recall", postgres, shardRecall, true},
		{"sharding", "shard-standby", postgres, shardStandby, true},
		{"sharding", "shard-lag", postgres, shardLag, true},
	}
}

// Select returns the rows that a name selects. The name is that of a row, that of a group, or
// "all".
func Select(name string) ([]Row, error) {
	var rows []Row
	var names []string
	for _, r := range Rows() {
		if name == "all" || name == r.Group || name == r.Name {
			rows = append(rows, r)
		}
		names = append(names, r.Name)
	}
	if rows == nil {
		return nil, fmt.Errorf("bench: no benchmark %q; the names are all, persistence, cluster, ddata, sharding, %q", name, names)
	}
	return rows, nil
}

// Run runs a row on the journals of the settings and passes each result to emit.
func (r Row) Run(ctx context.Context, s Settings, emit func(Result)) error {
	scheme, at, err := parseJournal(s.Journal)
	if err != nil {
		return err
	}
	s.Rounds, s.Runs, s.Scale = max(1, s.Rounds), max(1, s.Runs), max(1, s.Scale)
	if scheme != "" && !slices.Contains(r.Journals, scheme) {
		return nil // the row has no figure on this journal
	}
	for _, j := range r.Journals {
		if scheme == "" && j == "postgres" && !r.private || scheme != "" && scheme != j {
			continue
		}
		b := &run{settings: s, scheme: j, row: r}
		if j == "postgres" {
			b.dsn = at
		} else {
			b.dir = at
		}
		results, err := b.measure(ctx)
		if err != nil {
			return fmt.Errorf("bench %s on %s: %w", r.Name, j, err)
		}
		for _, res := range results {
			res.Group, res.Name, res.Journal = r.Group, r.Name, j
			emit(res)
		}
	}
	return nil
}

// run is the measurement of one row on one journal.
type run struct {
	settings Settings
	scheme   string
	dir      string
	dsn      string // secret
	row      Row
}

func (b *run) measure(ctx context.Context) (results []Result, err error) {
	stop, err := b.connectDSN(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return b.row.run(ctx, b)
}

func (b *run) progress(format string, args ...any) {
	if b.settings.Progress != nil {
		b.settings.Progress(fmt.Sprintf("%s (%s): ", b.row.Name, b.scheme) + fmt.Sprintf(format, args...))
	}
}

// trial reports whether the sizes are reduced. Goals do not apply to reduced sizes.
func (b *run) trial() bool { return b.settings.Scale > 1 }

// scaled returns n divided by the scale, but not less than least.
func (b *run) scaled(n, least int) int { return max(least, n/b.settings.Scale) }

// short returns a duration divided by the scale, but not less than least.
func (b *run) short(d, least time.Duration) time.Duration {
	return max(least, d/time.Duration(b.settings.Scale))
}

func (b *run) rounds(f func() error) error {
	return b.repeat("round", b.settings.Rounds, f)
}

// runs calls f for each repetition of an operation that takes minutes.
func (b *run) runs(subject string, f func() error) error {
	return b.repeat(subject+"run", b.settings.Runs, f)
}

func (b *run) repeat(subject string, n int, f func() error) error {
	for i := range n {
		b.progress("%s %d of %d", subject, i+1, n)
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

type compared struct{ limits, values []float64 }

// compare measures a figure and its limit alternately.
func (b *run) compare(limit, value func() (float64, error)) (c compared, err error) {
	err = b.rounds(func() (err error) {
		l, err := limit()
		if err != nil {
			return err
		}
		v, err := value()
		c.limits, c.values = append(c.limits, l), append(c.values, v)
		return err
	})
	return c, err
}

func (c compared) result(r Result) Result { return r.of(median(c.values), median(c.limits)) }

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	if n == 0 {
		return 0
	}
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

func percentile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[int(q*float64(len(s)-1))]
}

// WriteJSON writes a result as one line.
func WriteJSON(w io.Writer, r Result) error { return json.NewEncoder(w).Encode(r) }

// WriteHeader writes the header of the table of WriteRow.
func WriteHeader(w io.Writer) error {
	return writeCells(w, "name", "journal", "value", "unit", "limit", "ratio", "goal", "met", "settings")
}

// WriteRow writes a result as a row of a table.
func WriteRow(w io.Writer, r Result) error {
	goal := fmt.Sprintf("≥ %g", r.Goal)
	if r.Better == lower {
		goal = fmt.Sprintf("≤ %g", r.Goal)
	}
	met := "–"
	if r.Met != nil {
		met = "no"
		if *r.Met {
			met = "yes"
		}
	}
	limit, ratio := "", ""
	if r.Limit != 0 {
		limit, ratio = number(r.Limit), fmt.Sprintf("%.2f", r.Ratio)
	}
	settings := r.Settings
	if r.Detail != "" {
		settings += "; " + r.Detail
	}
	return writeCells(w, r.Name, r.Journal, number(r.Value), r.Unit, limit, ratio, goal, met, settings)
}

func writeCells(w io.Writer, cells ...any) error {
	_, err := fmt.Fprintf(w, "%-17s %-8s %12s %-13s %12s %8s  %-9s %-4s %s\n", cells...)
	return err
}

// number formats figures of at least 1,000 without decimals, and smaller ones with three
// significant digits.
func number(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// verify checks that the counters hold the sum of all additions and that the journal is complete.
func verify(ctx context.Context, s *database, targets []eventsourcing.Ref[counter], want int64) error {
	if err := verifySum(ctx, targets, want); err != nil {
		return err
	}
	report, err := operator.Verify(ctx, s.journal, operator.VerifyOptions{})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("verify: %d problems, the first: %w", len(report.Problems), report.Problems[0])
	}
	if report.Records != uint64(want) { //nolint:gosec // a count
		return fmt.Errorf("verify: the journal holds %d records, but %d were added", report.Records, want)
	}
	return nil
}

func verifySum(ctx context.Context, targets []eventsourcing.Ref[counter], want int64) error {
	var sum int64
	for _, to := range targets {
		n, err := eventsourcing.Ask(ctx, to, read{})
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		sum += n
	}
	if sum != want {
		return fmt.Errorf("verify: the counters hold %d, but %d were added", sum, want)
	}
	return nil
}
