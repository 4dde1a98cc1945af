// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/otel"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

const (
	docsPage  = "../../docs/observability.md"
	tableHead = "| metric | kind | unit | in Prometheus | attributes | meaning |\n|---|---|---|---|---|---|\n"
)

var update = flag.Bool("update", false, "rewrite the table of docs/observability.md")

// declared is an instrument as the code creates it.
type declared struct{ name, kind, unit, description string }

// declarations records the instruments that a Telemetry creates.
type declarations struct {
	noop.Meter
	all []declared
}

type declaring struct {
	noop.MeterProvider
	meter *declarations
}

func (d declaring) Meter(string, ...metric.MeterOption) metric.Meter { return d.meter }

func (d *declarations) add(name, kind string, cfg interface {
	Unit() string
	Description() string
},
) {
	d.all = append(d.all, declared{name, kind, cfg.Unit(), cfg.Description()})
}

func (d *declarations) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	d.add(name, "counter", metric.NewInt64CounterConfig(o...))
	return noop.Int64Counter{}, nil
}

func (d *declarations) Int64UpDownCounter(name string, o ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	d.add(name, "updowncounter", metric.NewInt64UpDownCounterConfig(o...))
	return noop.Int64UpDownCounter{}, nil
}

func (d *declarations) Int64Histogram(name string, o ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	d.add(name, "histogram", metric.NewInt64HistogramConfig(o...))
	return noop.Int64Histogram{}, nil
}

func (d *declarations) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	d.add(name, "histogram", metric.NewFloat64HistogramConfig(o...))
	return noop.Float64Histogram{}, nil
}

func (d *declarations) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	d.add(name, "counter", metric.NewInt64ObservableCounterConfig(o...))
	return noop.Int64ObservableCounter{}, nil
}

func (d *declarations) Int64ObservableUpDownCounter(name string, o ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	d.add(name, "updowncounter", metric.NewInt64ObservableUpDownCounterConfig(o...))
	return noop.Int64ObservableUpDownCounter{}, nil
}

func (d *declarations) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	d.add(name, "gauge", metric.NewInt64ObservableGaugeConfig(o...))
	return noop.Int64ObservableGauge{}, nil
}

func (d *declarations) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	d.add(name, "gauge", metric.NewFloat64ObservableGaugeConfig(o...))
	return noop.Float64ObservableGauge{}, nil
}

// declare returns all instruments, sorted by name.
func declare(tb testing.TB) []declared {
	tb.Helper()
	d := &declarations{}
	newTelemetry(tb, otel.Config{MeterProvider: declaring{meter: d}})
	slices.SortFunc(d.all, func(a, b declared) int { return strings.Compare(a.name, b.name) })
	return d.all
}

// exported returns the name of each instrument in Prometheus, as the exporter of OpenTelemetry forms it
// from the name, the kind and the unit.
func exported(tb testing.TB, all []declared) map[string]string {
	tb.Helper()
	names := make(map[string]string)
	for _, i := range all {
		registry := client.NewPedanticRegistry()
		exporter, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutTargetInfo())
		if err != nil {
			tb.Fatal(err)
		}
		meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)).Meter("test")
		unit := metric.WithUnit(i.unit)
		switch i.kind {
		case "counter":
			c, failed := meter.Int64Counter(i.name, unit)
			c.Add(tb.Context(), 1)
			err = failed
		case "updowncounter":
			c, failed := meter.Int64UpDownCounter(i.name, unit)
			c.Add(tb.Context(), 1)
			err = failed
		case "gauge":
			g, failed := meter.Int64Gauge(i.name, unit)
			g.Record(tb.Context(), 1)
			err = failed
		case "histogram":
			h, failed := meter.Int64Histogram(i.name, unit)
			h.Record(tb.Context(), 1)
			err = failed
		}
		families, failed := registry.Gather()
		if err = errors.Join(err, failed); err != nil || len(families) != 1 {
			tb.Fatalf("%s has %d names in Prometheus, error %v; want 1", i.name, len(families), err)
		}
		names[i.name] = families[0].GetName()
	}
	return names
}

// docsTable returns the rows of the table of docs/observability.md by metric, each with the cells after
// the name.
func docsTable(tb testing.TB) (rows map[string][]string, page, table string) {
	tb.Helper()
	text, err := os.ReadFile(docsPage)
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), tableHead)
	if !found {
		tb.Fatalf("%s has no table with the head\n%s", docsPage, tableHead)
	}
	table, _, _ = strings.Cut(rest, "\n\n")
	rows = make(map[string][]string)
	for line := range strings.Lines(table + "\n") {
		if cells := strings.Split(strings.Trim(line, "|\n "), " | "); len(cells) == 6 {
			rows[strings.Trim(cells[0], "`")] = cells[1:]
		}
	}
	return rows, string(text), table
}

// docs/observability.md lists each instrument with its kind, unit, name in Prometheus and description.
func TestTableOfMetrics(t *testing.T) {
	t.Parallel()
	rows, page, table := docsTable(t)
	all := declare(t)
	names := exported(t, all)
	var lines []string
	for _, i := range all {
		if i.description == "" {
			t.Errorf("the instrument %s has no description", i.name)
		}
		attributes := ""
		if cells := rows[i.name]; cells != nil {
			attributes = cells[3]
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | `%s` | `%s` | %s | %s |", i.name, i.kind, i.unit, names[i.name], attributes, i.description))
	}
	want := strings.Join(lines, "\n")
	if *update {
		if err := os.WriteFile(docsPage, []byte(strings.Replace(page, tableHead+table, tableHead+want, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("%s has\n%s\nwant (rewrite it with -update)\n%s", docsPage, table, want)
	}
}

// station is a node with a region, a replicator and a projection that are reported to a meter.
type station struct {
	node    *cluster.Node
	region  *sharding.Region[Account]
	counter *ddata.Replicator
}

func openStation(t *testing.T, telemetry *otel.Telemetry) *station {
	t.Helper()
	ctx := t.Context()
	self, err := identity.New("a")
	if err != nil {
		t.Fatal(err)
	}
	node, err := cluster.Join(ctx, cluster.Config{
		Cluster: "test", Carrier: inmem.NewNetwork(inmem.NetworkConfig{}).Carrier(self), Seeds: []string{"a"}, Observer: telemetry.ClusterObserver(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		node.Stop()
		<-node.Done()
	})
	t.Cleanup(telemetry.WatchNode(node))
	db := store.Of(inmem.NewJournal(), nil)
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db, Observer: telemetry.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if closed := rt.Close(context.Background()); closed != nil {
			t.Error(closed)
		}
	})
	t.Cleanup(telemetry.Watch(rt))
	s := &station{node: node}
	if s.region, err = sharding.Host(ctx, node, rt, accountType(false), sharding.Options{Shards: 10}); err != nil {
		t.Fatal(err)
	}
	if s.counter, err = ddata.Start(ctx, node, ddata.Config{Observer: telemetry.ReplicatorObserver()}); err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(node.AwaitUp(ctx), s.region.AwaitReady(ctx), s.counter.AwaitReplicas(ctx, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err = eventsourcing.Ask(ctx, s.region.Ref("1"), Deposit{Amount: 5}); err != nil {
		t.Fatal(err)
	}
	key := ddata.Key[crdt.PNCounter]("visits")
	if _, err = ddata.Update(ctx, s.counter, key, ddata.WriteLocal(), func(c crdt.PNCounter) (crdt.PNCounter, error) { return c.Add(s.counter.Self(), 1), nil }); err != nil {
		t.Fatal(err)
	}
	balances, err := projection.New(projection.Config[Event]{
		Name: "balances", Journal: db.Journal(), Events: codec.Types(codec.Name[Deposited]("deposited")), Observer: telemetry.ProjectionObserver(),
		Handler: projection.AtLeastOnce[Event]{Store: new(projection.Memory), Handle: func(context.Context, projection.Envelope[Event]) error { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err = balances.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(telemetry.WatchProjection("balances", balances))
	return s
}

// The figures of a node, its regions, replicators and projections have the values of the program and
// only the attributes of the table.
func TestSourcesOfANode(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	telemetry := newTelemetry(t, otel.Config{MeterProvider: m.provider})
	s := openStation(t, telemetry)
	got := m.collect(t)
	const node, account = "refold.node.name=a", "refold.entity.type=account refold.node.name=a"
	for _, want := range []string{
		"refold.cluster.node.ready{" + node + "} 1",
		"refold.cluster.node.disconnected{" + node + "} 0",
		"refold.cluster.node.suspended{" + node + "} 0",
		"refold.cluster.member.count{refold.member.status=up " + node + "} 1",
		"refold.cluster.member.unreachable{" + node + "} 0",
		"refold.sharding.region.registered{" + account + "} 1",
		"refold.sharding.coordinator.active{" + account + "} 1",
		"refold.sharding.shard.hosted{" + account + "} 1",
		"refold.sharding.shard.placed{" + account + "} 1",
		"refold.sharding.entity.running{" + account + "} 1",
		"refold.entity.resident{refold.entity.type=account} 1",
		"refold.journal.breaker.open{} 0",
		"refold.ddata.key.count{" + node + " refold.replicator.name=ddata} 1",
		"refold.ddata.replica.count{" + node + " refold.replicator.name=ddata} 1",
		"refold.ddata.request.duration{refold.operation=update refold.outcome=ok refold.replicator.name=ddata} 1",
		"refold.projection.event.handled{refold.projection.name=balances} 1",
		"refold.projection.caught_up{refold.projection.name=balances} 1",
		"refold.projection.lag{refold.projection.name=balances} 0",
		"refold.projection.batch.duration{refold.outcome=ok refold.projection.name=balances} 1",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no series %q in\n\t%s", want, strings.Join(got, "\n\t"))
		}
	}
	s.node.Stop()
	<-s.node.Done()
	if got = m.collect(t); !slices.Contains(got, "refold.cluster.node.ready{"+node+"} 0") {
		t.Errorf("no series of the readiness of the ended node in\n\t%s", strings.Join(got, "\n\t"))
	}
	for _, line := range got {
		if strings.HasPrefix(line, "refold.cluster.member") || strings.HasPrefix(line, "refold.sharding") || strings.HasPrefix(line, "refold.ddata.key") {
			t.Errorf("the ended node has the series %s, want none", line)
		}
	}
}

// Each series has only attributes that docs/observability.md lists for its metric.
func TestTableOfAttributes(t *testing.T) {
	t.Parallel()
	rows, _, _ := docsTable(t)
	m := newMeter(t)
	telemetry := newTelemetry(t, otel.Config{MeterProvider: m.provider})
	openStation(t, telemetry)
	everything(telemetry.Observer())
	c := telemetry.ClusterObserver()
	c.Instance(cluster.InstanceInfo{Singleton: "mailer"})
	c.Instance(cluster.InstanceInfo{Singleton: "mailer", Stopping: true})
	c.Phase(cluster.PhaseInfo{Took: time.Second, TimedOut: true})
	telemetry.ReplicatorObserver().Request(ddata.RequestInfo{Replicator: "ddata", Op: "get", Err: errors.New("at secret.example")})
	for _, i := range m.instruments(t) {
		if rows[i.Name] == nil {
			t.Fatalf("%s does not list %s", docsPage, i.Name)
		}
		for _, name := range attributeNames(i.Data) {
			if !strings.Contains(rows[i.Name][3], "`"+name+"`") {
				t.Errorf("%s has the attribute `%s`, the table lists %s", i.Name, name, rows[i.Name][3])
			}
		}
	}
	got := m.collect(t)
	for _, want := range []string{
		"refold.cluster.singleton.running{refold.singleton.name=mailer} 1",
		"refold.cluster.shutdown.duration{refold.outcome=failed refold.shutdown.phase=before-unbind} 1",
		"refold.ddata.request.duration{refold.operation=get refold.outcome=failed refold.replicator.name=ddata} 1",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no series %q", want)
		}
	}
}

// attributeNames returns the names of the attributes of all data points.
func attributeNames(data metricdata.Aggregation) (names []string) {
	add := func(set attribute.Set) {
		for _, kv := range set.ToSlice() {
			names = append(names, string(kv.Key))
		}
	}
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
