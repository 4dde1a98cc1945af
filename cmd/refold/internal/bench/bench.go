// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench holds the benchmarks of "refold bench". Each measures a figure and its raw limit in
// turns in the same run, and prints their ratio with Refold's goal:
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
	// Limit is the raw figure of the same run, 0 if there is none.
	Limit float64 `json:"limit"`
	Ratio float64 `json:"ratio"`
	Goal  float64 `json:"goal"`
	// Better is "higher" or "lower".
	Better string `json:"better"`
	// Met is nil if the figure is not valid on this machine.
	Met      *bool  `json:"met"`
	Settings string `json:"settings"`
	// Detail is additional text, such as percentiles.
	Detail string `json:"detail,omitempty"`
}

// judge sets Met.
func (r Result) judge() Result {
	met := r.Ratio >= r.Goal
	if r.Better == lower {
		met = r.Ratio <= r.Goal
	}
	r.Met = &met
	return r
}

// atMost returns a result with an upper bound and without a limit.
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
	// connection string, or "nats:" for rows with a NATS server and without a journal. "" selects
	// everything embedded that a row supports.
	Journal string
	// Rounds is the number of measurements per side, at least 1.
	Rounds int
	// Length is the duration of one throughput measurement.
	Length time.Duration
	// Scale divides the sizes of data sets, for tests.
	Scale int
	// Node is the command, with arguments, of a node of a fleet: see package fleet.
	Node []string
	// DataNode is the command that runs ServeData.
	DataNode []string
	// ShardNode is the command that runs ServeShards.
	ShardNode []string
	// Runs is the number of repetitions of operations that take minutes, such as killing a node. At
	// least 1.
	Runs int
	// Progress receives the name of the current measurement.
	Progress func(subject string)
}

// Row is one benchmark.
type Row struct {
	Group, Name string
	// Journals are the supported schemes. postgres runs on request, or if private is set.
	Journals []string
	run      func(ctx context.Context, b *run) ([]Result, error)
	// private starts a private server if no journal was requested.
	private bool
}

// Rows returns all benchmarks in their order of execution.
func Rows() []Row {
	const group = "persistence"
	return []Row{
		{group, "persist", []string{"leveldb", "inmem", "postgres"}, persist, false},
		{group, "hot", []string{"leveldb", "postgres"}, hot, false},
		{group, "latency", []string{"leveldb", "postgres"}, latency, false},
		{group, "recover", []string{"leveldb", "postgres"}, recoverEvents, false},
		{group, "live", []string{"postgres"}, live, false},
		{group, "projection", []string{"postgres"}, project, false},
		{group, "snapshot-recover", []string{"leveldb"}, recoverSnapshot, false},
		{group, "resident", []string{"inmem"}, resident, false},
		{group, "wake", []string{"inmem"}, wake, false},
		{"cluster", "transport", []string{"nats"}, transports, false},
		{"cluster", "nodes", []string{"nats"}, processes, false},
		{"ddata", "ddata-local", []string{"inmem"}, dataLocal, false},
		{"ddata", "ddata-wire", []string{"inmem"}, dataWire, false},
		{"ddata", "ddata-memory", []string{"inmem"}, dataMemory, false},
		{"ddata", "ddata-idle", []string{"inmem"}, dataIdle, false},
		{"ddata", "ddata-visible", []string{"nats"}, dataVisible, false},
		{"ddata", "ddata-update", []string{"nats"}, dataUpdate, false},
		{"ddata", "ddata-join", []string{"nats"}, dataJoin, false},
		{"sharding", "shard-ask", []string{"nats"}, shardAsks, false},
		{"sharding", "shard-place", []string{"leveldb", "inmem", "nats"}, shardPlace, false},
		{"sharding", "shard-move", []string{"postgres"}, shardMove, true},
		{"sharding", "shard-kill", []string{"postgres"}, shardKill, true},
		{"sharding", "shard-recall", []string{"postgres"}, shardRecall, true},
	}
}

// Select returns the rows of a name: the name of a row, of a group, or "all".
func Select(name string) ([]Row, error) {
	var rows []Row
	var names []string
	for _, r := range Rows() {
		if name == "all" || name == r.Group || name == r.Name {
			rows = append(rows, r)
		}
		names = append(names, r.Name)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("bench: no benchmark %q; the names are all, persistence, cluster, ddata, sharding, %q", name, names)
	}
	return rows, nil
}

// Run runs a row on the journals of the settings and passes each result to emit.
func (r Row) Run(ctx context.Context, s Settings, emit func(Result)) error {
	scheme, dir, err := parseJournal(s.Journal)
	if err != nil {
		return err
	}
	if scheme != "" && !slices.Contains(r.Journals, scheme) {
		return nil // the row has no figure on this journal
	}
	for _, j := range r.Journals {
		if scheme == "" && j == "postgres" && !r.private || scheme != "" && scheme != j {
			continue
		}
		b := &run{settings: s, scheme: j, row: r}
		if j == "postgres" {
			b.dsn = dir
		} else {
			b.dir = dir
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

// scaled returns n divided by the scale, at least 1.
func (b *run) scaled(n int) int { return max(1, n/max(1, b.settings.Scale)) }

// alternate measures two sides in turns.
func (b *run) alternate(limit, value func() (float64, error)) (limits, values []float64, err error) {
	for i := range max(1, b.settings.Rounds) {
		b.progress("round %d of %d", i+1, b.settings.Rounds)
		l, err := limit()
		if err != nil {
			return nil, nil, err
		}
		v, err := value()
		if err != nil {
			return nil, nil, err
		}
		limits, values = append(limits, l), append(values, v)
	}
	return limits, values, nil
}

// median returns the median.
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

// percentile returns the given percentile of the durations.
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
	_, err := fmt.Fprintf(w, "%-17s %-8s %12s %-13s %12s %8s  %-9s %-4s %s\n",
		"name", "journal", "value", "unit", "limit", "ratio", "goal", "met", "settings")
	return err
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
	_, err := fmt.Fprintf(w, "%-17s %-8s %12s %-13s %12s %8s  %-9s %-4s %s\n",
		r.Name, r.Journal, number(r.Value), r.Unit, limit, ratio, goal, met, settings)
	return err
}

// number formats large figures without decimals and small ones with some.
func number(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// verify checks after a run that the counters hold the sum of all additions and that the journal is
// complete.
func verify(ctx context.Context, s *database, targets []eventsourcing.Ref[counter], want int64) error {
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
