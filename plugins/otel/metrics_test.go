// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/otel"
	"github.com/refold-io/refold/store"
)

// meter collects metrics in memory.
type meter struct {
	reader   *metric.ManualReader
	provider *metric.MeterProvider
}

func newMeter(tb testing.TB) *meter {
	tb.Helper()
	m := &meter{reader: metric.NewManualReader()}
	m.provider = metric.NewMeterProvider(metric.WithReader(m.reader))
	tb.Cleanup(func() {
		if err := m.provider.Shutdown(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// collect returns all data points as lines. A line has the name, the attributes, and the value: a
// sum, or the count and the sum of a histogram. Sums of seconds are omitted.
func (m *meter) collect(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, i := range m.instruments(t) {
		line := func(set attribute.Set, format string, args ...any) {
			var values []string
			for _, kv := range set.ToSlice() {
				values = append(values, string(kv.Key)+"="+kv.Value.String())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} "+format, slices.Concat([]any{i.Name, strings.Join(values, " ")}, args)...))
		}
		switch data := i.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				line(p.Attributes, "%d", p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				line(p.Attributes, "%d", p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				line(p.Attributes, "%g", p.Value)
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				line(p.Attributes, "%d of %d", p.Count, p.Sum)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				line(p.Attributes, "%d", p.Count)
			}
		default:
			t.Errorf("%s: unexpected data type %T", i.Name, data)
		}
	}
	slices.Sort(lines)
	return lines
}

func (m *meter) instruments(t *testing.T) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) != 1 {
		t.Fatalf("got %d scopes, want 1", len(all.ScopeMetrics))
	}
	return all.ScopeMetrics[0].Metrics
}

func (m *meter) want(t *testing.T, want ...string) {
	t.Helper()
	got := m.collect(t)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// everything records one or two values with each instrument.
func everything(o eventsourcing.Observer) {
	ctx := context.Background()
	for _, err := range []error{nil, errPoor, eventsourcing.ErrStashFull} {
		o.Command(eventsourcing.CommandInfo{PersistenceID: "account|42", Command: Deposit{}, Context: ctx, Duration: time.Second, Err: err})
	}
	o.Stashed(eventsourcing.StashInfo{PersistenceID: "account|42", Command: &Deposit{}})
	o.Stashed(eventsourcing.StashInfo{PersistenceID: "account|42", Command: &Deposit{}, Aside: true})
	o.Commit(eventsourcing.CommitInfo{Writes: 3, Events: 5, Bytes: 700, Failed: 2, Duration: time.Second})
	o.Commit(eventsourcing.CommitInfo{Writes: 1, Events: 1, Bytes: 50, Duration: time.Second})
	o.RecoveryStarted("account|42")
	o.RecoveryStarted("account|43")
	o.Recovery(eventsourcing.RecoveryInfo{PersistenceID: "account|42", Context: ctx, Events: 12, Duration: time.Second})
	o.RecoveryStarted("loan|1")
	o.Recovery(eventsourcing.RecoveryInfo{PersistenceID: "loan|1", Context: ctx, Events: 1, Err: errors.New("at secret.example")})
	o.Snapshot(eventsourcing.SnapshotInfo{PersistenceID: "account|42", Bytes: 100, Duration: time.Second})
	o.Snapshot(eventsourcing.SnapshotInfo{PersistenceID: "account|42", Bytes: 100, Err: context.DeadlineExceeded})
	o.Failure("account|42", eventsourcing.ErrConflict)
	o.Fence("account|42", 7)
	o.Dropped(eventsourcing.DroppedInfo{PersistenceID: "account|42", Message: Deposit{}, Err: eventsourcing.ErrStopped})
	o.Stopped("account|42")
}

func TestEveryInstrument(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	everything(newTelemetry(t, otel.Config{MeterProvider: m.provider}).Observer())
	const deposit = "refold.command.type=otel_test.Deposit refold.entity.type=account"
	m.want(
		t,
		"refold.command.duration{"+deposit+" refold.outcome=ok} 1",
		"refold.command.duration{error.type=bank/poor "+deposit+" refold.outcome=refused} 1",
		"refold.command.duration{error.type=refold/stash_full "+deposit+" refold.outcome=failed} 1",
		"refold.command.stashed{"+deposit+" refold.stash.reason=waiting} 1",
		"refold.command.stashed{"+deposit+" refold.stash.reason=aside} 1",
		"refold.commit.duration{} 2",
		"refold.commit.writes{} 2 of 4",
		"refold.commit.events{} 2 of 6",
		"refold.commit.size{} 2 of 750",
		"refold.commit.failed_writes{} 2",
		"refold.recovery.active{refold.entity.type=account} 1",
		"refold.recovery.active{refold.entity.type=loan} 0",
		"refold.recovery.duration{refold.entity.type=account refold.outcome=ok} 1",
		"refold.recovery.duration{error.type=internal refold.entity.type=loan refold.outcome=failed} 1",
		"refold.recovery.events{refold.entity.type=account} 1 of 12",
		"refold.recovery.events{refold.entity.type=loan} 1 of 1",
		"refold.snapshot.duration{refold.entity.type=account refold.outcome=ok} 1",
		"refold.snapshot.duration{error.type=refold/deadline_exceeded refold.entity.type=account refold.outcome=failed} 1",
		"refold.snapshot.size{refold.entity.type=account} 2 of 200",
		"refold.entity.failures{error.type=refold/conflict refold.entity.type=account} 1",
		"refold.entity.fences{refold.entity.type=account} 1",
		"refold.entity.stopped{refold.entity.type=account} 1",
		"refold.message.dropped{error.type=refold/stopped refold.entity.type=account} 1",
	)
}

func TestRuntimeMetrics(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	telemetry := newTelemetry(t, otel.Config{MeterProvider: m.provider})
	b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: telemetry.Observer()}, false)
	stop := telemetry.Watch(b.rt)
	ask(t, t.Context(), b, "1", Deposit{Amount: 5})
	if _, err := eventsourcing.Ask(t.Context(), b.Ref("1"), Transfer{To: "2", Amount: 7}); !errors.Is(err, errPoor) {
		t.Fatal(err)
	}
	if got := m.collect(t); !slices.Contains(got, "refold.entity.resident{refold.entity.type=account} 1") {
		t.Errorf("collected %q, want 1 resident account", got)
	}
	stop()
	b.close(t)
	got := slices.DeleteFunc(m.collect(t), func(line string) bool { return strings.HasPrefix(line, "refold.commit.size") })
	const account = "refold.entity.type=account"
	want := []string{
		"refold.command.duration{error.type=bank/poor refold.command.type=otel_test.Transfer " + account + " refold.outcome=refused} 1",
		"refold.command.duration{refold.command.type=otel_test.Deposit " + account + " refold.outcome=ok} 1",
		"refold.command.stashed{refold.command.type=otel_test.Deposit " + account + " refold.stash.reason=waiting} 1",
		"refold.commit.duration{} 1",
		"refold.commit.events{} 1 of 1",
		"refold.commit.writes{} 1 of 1",
		"refold.entity.stopped{" + account + "} 1",
		"refold.recovery.active{" + account + "} 0",
		"refold.recovery.duration{" + account + " refold.outcome=ok} 1",
		"refold.recovery.events{" + account + "} 1 of 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestWatchSeveralRuntimes(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	telemetry := newTelemetry(t, otel.Config{MeterProvider: m.provider})
	const line = "refold.entity.resident{refold.entity.type=account} "
	var stops []func()
	for i := range 3 {
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, false)
		stops = append(stops, telemetry.Watch(b.rt))
		for id := range i + 1 {
			ask(t, t.Context(), b, fmt.Sprint(id), Deposit{Amount: 1})
		}
	}
	const breakers = "refold.journal.breaker.open{} 0"
	m.want(t, line+"6", breakers)
	stops[1]()
	stops[1]()
	m.want(t, line+"4", breakers)
}

func TestErrorCodeLimit(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	o := newTelemetry(t, otel.Config{MeterProvider: m.provider}).Observer()
	for i := range 1500 {
		o.Failure("account|42", eventsourcing.NewRefusal(fmt.Sprint("test/", i), ""))
	}
	got := m.collect(t)
	if want := "refold.entity.failures{error.type=_OTHER refold.entity.type=account} 500"; len(got) != 1001 || !slices.Contains(got, want) {
		t.Errorf("got %d series, want 1001 with %q", len(got), want)
	}
}

func TestNoSeriesPerEntity(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	o := newTelemetry(t, otel.Config{MeterProvider: m.provider}).Observer()
	before := 0
	for i := range 3 {
		id := fmt.Sprint("account|", i)
		o.Command(eventsourcing.CommandInfo{PersistenceID: id, Command: Deposit{}, Context: t.Context()})
		o.Stopped(id)
		if n := len(m.collect(t)); i > 0 && n != before {
			t.Errorf("entity %d: got %d series, want %d", i, n, before)
		} else {
			before = n
		}
	}
}
