// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/cmd/refold/internal/bench"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// worker is the argument with which this test binary runs as a worker process.
const worker = "serve-worker"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker {
		if err := bench.ServeWorker(context.Background(), os.Stdin, os.Stdout, slog.New(slog.DiscardHandler)); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

// small returns settings with small sizes and short durations.
func small(journal string) bench.Settings {
	return bench.Settings{
		Journal: journal, Rounds: 1, Length: 20 * time.Millisecond, Scale: 10_000,
		Worker: []string{os.Args[0], worker},
	}
}

// TestRows checks that each row runs on each of its journals, verifies its data, removes its files,
// and returns complete results.
func TestRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Run("rows", func(t *testing.T) {
		for _, row := range bench.Rows() {
			if row.Group == "sharding" && row.Journals[0] == "postgres" && row.Name != "shard-lag" && !effort.Soak() {
				continue // the cluster needs half a minute to detect a killed process
			}
			for _, scheme := range row.Journals {
				t.Run(row.Name+" on "+scheme, func(t *testing.T) {
					t.Parallel() // the rows mostly wait for nodes to join
					address := scheme + ":"
					switch scheme {
					case "leveldb":
						address += dir
					case "postgres":
						address = pgtest.DSN(t)
					}
					var results []bench.Result
					err := row.Run(t.Context(), small(address), func(r bench.Result) { results = append(results, r) })
					if err != nil || len(results) == 0 {
						t.Errorf("Run: %d results, error %v; want at least 1 and no error", len(results), err)
					}
					for _, r := range results {
						checkResult(t, row, scheme, r)
					}
				})
			}
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files after the run: %v, error %v; want none", left, err)
	}
}

func checkResult(t *testing.T, row bench.Row, scheme string, r bench.Result) {
	t.Helper()
	if r.Group != row.Group || r.Name != row.Name || r.Journal != scheme {
		t.Errorf("the result has group %s, name %s, journal %s; want %s, %s, %s", r.Group, r.Name, r.Journal, row.Group, row.Name, scheme)
	}
	if r.Unit == "" || r.Settings == "" || r.Goal < 0 || r.Better != "higher" && r.Better != "lower" {
		t.Errorf("%s on %s: the result has empty or invalid fields: %+v", row.Name, scheme, r)
	}
	if r.Met != nil && *r.Met != (r.Better == "higher" && r.Ratio >= r.Goal || r.Better == "lower" && r.Ratio <= r.Goal) {
		t.Errorf("%s on %s: Met = %v does not agree with the ratio and the goal: %+v", row.Name, scheme, *r.Met, r)
	}
	var out bytes.Buffer
	if err := bench.WriteJSON(&out, r); err != nil {
		t.Errorf("%s on %s: write the result as JSON: %v", row.Name, scheme, err)
	}
	want := []string{"group", "name", "journal", "value", "unit", "limit", "ratio", "goal", "better", "met", "settings"}
	if got := keys(t, out.Bytes()); !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("%s on %s: fields %v, want %v", row.Name, scheme, got, want)
	}
}

// keys returns the field names of a JSON object, in order.
func keys(t *testing.T, object []byte) []string {
	t.Helper()
	if bytes.Count(object, []byte{'\n'}) != 1 {
		t.Errorf("the JSON object does not consist of one line: %s", object)
	}
	in := json.NewDecoder(bytes.NewReader(object))
	var names []string
	for i := 0; ; i++ {
		token, err := in.Token()
		if err != nil {
			return names
		}
		if name, ok := token.(string); ok && i%2 == 1 { // all values are scalars
			names = append(names, name)
		}
	}
}

// TestInterrupted checks that an interrupted run returns an error and removes its files.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	for _, row := range bench.Rows() {
		if !slices.Contains(row.Journals, "leveldb") {
			continue
		}
		if err := row.Run(ctx, small("leveldb:"+dir), func(bench.Result) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: interrupted Run returned %v, want context.Canceled", row.Name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files after the interrupted runs: %v, error %v; want none", left, err)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"all": len(bench.Rows()), "persistence": 11, "cluster": 2, "ddata": 7, "sharding": 9, "hot": 1} {
		rows, err := bench.Select(name)
		if err != nil || len(rows) != want {
			t.Errorf("%s: %d rows, %v; want %d", name, len(rows), err, want)
		}
	}
	if _, err := bench.Select("cold"); err == nil || !strings.Contains(err.Error(), "snapshot-recover") {
		t.Errorf("Select of an unknown name: error %v, want one that lists the names", err)
	}
}

func TestJournalAddress(t *testing.T) {
	t.Parallel()
	row := bench.Rows()[0]
	for _, address := range []string{"leveldb", "inmem:x", "postgres:x", "nats:x", "x"} {
		if err := row.Run(t.Context(), small(address), func(bench.Result) {}); err == nil {
			t.Errorf("Run with the journal %q returned no error", address)
		}
	}
}

// TestPrivateServer checks that a row starts a private server if it gets no address.
func TestPrivateServer(t *testing.T) {
	t.Parallel()
	rows, err := bench.Select("latency")
	if err != nil {
		t.Fatal(err)
	}
	results := 0
	if err := rows[0].Run(t.Context(), small("postgres:"), func(bench.Result) { results++ }); err != nil || results == 0 {
		t.Errorf("Run on a private server: %d results, error %v; want at least 1 and no error", results, err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	var out strings.Builder
	if err := bench.WriteHeader(&out); err != nil {
		t.Fatal(err)
	}
	for _, r := range []bench.Result{
		{Name: "persist", Journal: "leveldb", Value: 123456.7, Unit: "asks/s", Limit: 200000, Ratio: 0.617, Goal: 0.45, Better: "higher", Met: &yes, Settings: "1 entity", Detail: "p50 1ms"},
		{Name: "resident", Journal: "inmem", Value: 12.345, Unit: "bytes/entity", Ratio: 12.345, Goal: 10, Better: "lower", Met: &no, Settings: "idle"},
		{Name: "hot", Journal: "leveldb", Value: 5, Unit: "asks/s", Limit: 1, Ratio: 5, Goal: 12, Better: "higher", Settings: "fast disk"},
	} {
		if err := bench.WriteRow(&out, r); err != nil {
			t.Fatal(err)
		}
	}
	want := `
name              journal         value unit                 limit    ratio  goal      met  settings
persist           leveldb        123457 asks/s              200000     0.62  ≥ 0.45    yes  1 entity; p50 1ms
resident          inmem            12.3 bytes/entity                         ≤ 10      no   idle
hot               leveldb             5 asks/s                   1     5.00  ≥ 12      –    fast disk
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
