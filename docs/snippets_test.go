// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// The code of the pages in this folder that needs servers, so it is only compiled. Tests compare it
// with the pages: see package docblocks.
package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/otel"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/passivation"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// The functions are uses of the API and never called.
var (
	_ = []any{openPostgres, readEvents, operators, readers, prices, replicate, durableKeys, idle}
	_ = []any{bankNode, askRates, serveConsole[int, int], observed[int, int], hosted[int, int]}
)

func openPostgres(ctx context.Context) (*es.Runtime, error) {
	// region open-postgres
	db, err := postgres.Open(ctx, "postgres://bank@db.example.com/bank?sslmode=verify-full", postgres.Config{}) // version 13 or newer
	if err != nil {
		return nil, err
	}
	rt, err := es.Open(es.Config{Store: db}) //nolint:contextcheck // the runtime outlives the call
	// endregion
	return rt, err
}

func readEvents(ctx context.Context, db store.DB, last journal.Offset) (journal.Offset, error) {
	// region read-events
	for e, err := range journal.Live(ctx, db.Journal(), journal.Criteria{Types: []string{"account"}, Tag: "large"}, last) {
		if err != nil {
			return last, err // journal.Current ends after the last stored event
		}
		fmt.Println(e.ID, e.SequenceNr, e.Manifest)
		last = e.Offset // resume after this offset to receive each event exactly once
	}
	// endregion
	return last, nil
}

// bankNode runs a node of the cluster "bank" until SIGTERM, with a singleton and probes.
func bankNode(ctx context.Context, log *slog.Logger, fetchRates func(context.Context, *cluster.Inbox) error) error {
	access := nats.Access{URLs: []string{"nats://127.0.0.1:4222"}} // another machine: tls:// and a credentials file
	self, err := identity.New("bank-0")
	if err != nil {
		return err
	}
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: "bank", Self: self, Logger: log}) //nolint:contextcheck // the connection outlives the call
	if err != nil {
		return err
	}
	leases, err := nats.OpenLeases(ctx, nats.LeasesConfig{Access: access, Cluster: "bank", Name: "bank-0", Replicas: 3}) // only if leases are used, see Permissions; Replicas is 1 for a single server
	if err != nil {
		return err
	}
	node, err := cluster.Start(cluster.Config{ //nolint:contextcheck // the node outlives the call
		Cluster: "bank",
		Carrier: carrier,
		Seeds:   []string{"bank-0", "bank-1", "bank-2"}, // the same on all nodes, in the same order
		Downing: downing.Settings{Strategy: downing.KeepMajority},
		Leases:  leases,
		Logger:  log,
	})
	if err != nil {
		return err
	}
	if err = node.Singleton(ctx, cluster.Singleton{Name: "rates", Run: fetchRates}); err != nil { // on every node that may run it
		return err
	}
	probes := &http.Server{Addr: "127.0.0.1:8080", Handler: node.Health(), ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { log.ErrorContext(ctx, "probes have ended", slog.Any("error", probes.ListenAndServe())) }()
	return node.ShutdownOnSignal(ctx) // if the result is an error, end the process with an exit status other than 0
}

// askRates sends a request to the singleton. The context needs a deadline: Ask waits for an instance.
func askRates(ctx context.Context, node *cluster.Node, question []byte) ([]byte, error) {
	rates, err := node.Proxy(ctx, cluster.ProxyConfig{Singleton: "rates"}) // on every node that sends requests to it
	if err != nil {
		return nil, err
	}
	return rates.Ask(ctx, question)
}

// operators lets one operator read three services, and act on one.
func operators() error {
	read, err := nats.OperatorPermissions("bank", "ops", transport.AdminRead, "cluster", "sharding", "inspect")
	if err != nil {
		return err
	}
	act, err := nats.OperatorPermissions("bank", "ops", transport.AdminAct, "sharding")
	if err != nil {
		return err
	}
	fmt.Println(read.And(act))
	return nil
}

// readers lets a console show everything and change nothing.
func readers() (nats.Permissions, error) {
	return nats.OperatorPermissions("bank", "console", transport.AdminRead, "cluster", "sharding", "ddata", "inspect", "projection", "runtime")
}

// onlyAdmins is a cluster.Config.Authorize: the named operators may act, and all may read.
func onlyAdmins(admins ...string) func(context.Context, cluster.OperatorRequest) error {
	return func(_ context.Context, r cluster.OperatorRequest) error {
		if r.Right == transport.AdminAct && !slices.Contains(admins, r.Operator) {
			return fmt.Errorf("%s may not %s", r.Operator, r.Command)
		}
		return nil
	}
}

var _ = cluster.Config{Authorize: onlyAdmins("ops")}

// serveConsole returns a server of the console for a program whose journal is a LevelDB directory.
func serveConsole[S, E any](rt *es.Runtime, typ es.Type[S, E]) (*http.Server, error) {
	agent, err := console.NewAgent(console.AgentConfig{
		Runtime: rt,
		Types:   []console.Type{console.TypeOf(typ)}, // states need the Go types
	})
	if err != nil {
		return nil, err
	}
	c, err := console.New(console.Options{Admin: agent, Prefix: "/console/"})
	if err != nil {
		return nil, errors.Join(err, agent.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", c)
	log.Println("open", c.LoginURL("http://127.0.0.1:8080"))
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(func() { c.Close(); _ = agent.Close() })
	return server, nil
}

// replicate starts the replicator of a node, changes a key, and follows others.
func replicate(ctx context.Context, node *cluster.Node) error {
	r, err := ddata.Start(ctx, node, ddata.Config{}) // on every node
	if err != nil {
		return err
	}
	if err = r.AwaitReplicas(ctx, 3); err != nil { // before the program relies on majorities
		return err
	}
	visits := ddata.Key[crdt.PNCounter]("visits")
	n, err := ddata.Update(ctx, r, visits, ddata.WriteMajority(), func(c crdt.PNCounter) (crdt.PNCounter, error) {
		return c.Add(r.Self(), 1), nil
	})
	if err != nil {
		return err
	}
	fmt.Println("visits:", n.Value())
	for change := range r.Subscribe(ctx, ddata.Prefix("cart-")) {
		fmt.Println(change.Key, change.Kind)
	}
	return nil
}

func durableKeys(dir string) ddata.Config {
	// region durable-keys
	config := ddata.Config{Durable: []string{"limit-*"}, Opener: leveldb.NewDurable(dir, leveldb.DurableConfig{})}
	// endregion
	return config
}

// prices starts a group with two instances, from which each node requests prices.
func prices(ctx context.Context, node *cluster.Node, price func(product []byte) []byte) error {
	group, err := sharding.StartGroup(ctx, node, sharding.Group{ // on every node
		Name:      "prices",
		Instances: 2,
		Run: func(ctx context.Context, i *sharding.Instance) error {
			for d := range i.All(ctx) {
				if err := d.Reply(price(d.Payload)); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	reply, err := group.Any().Ask(ctx, []byte("tea")) // from any node
	fmt.Println(string(reply))
	return err
}

// hosted returns the entities of a type, on one node or in a cluster.
func hosted[S, E any](ctx context.Context, node *cluster.Node, rt *es.Runtime, typ es.Type[S, E]) (es.Entities[S], error) {
	if node == nil {
		return es.Host(rt, typ)
	}
	return sharding.Host(ctx, node, rt, typ, sharding.Options{}) // on every node
}

func idle() []passivation.Settings {
	// region passivation
	later := passivation.Settings{IdleTimeout: 10 * time.Minute}
	limited := passivation.Settings{Limit: 50_000} // at most this number per node; the least recently used leave first
	never := passivation.Settings{Disabled: true}
	// endregion
	return []passivation.Settings{later, limited, never}
}

// observed starts the parts of a program with metrics, and serves them to operators.
func observed[S, E any](ctx context.Context, config cluster.Config, db store.DB, typ es.Type[S, E], totals projection.Config[E]) error {
	// region telemetry
	exporter, err := prometheus.New() // go.opentelemetry.io/otel/exporters/prometheus
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	telemetry, err := otel.New(otel.Config{MeterProvider: provider}) // github.com/refold-io/refold/plugins/otel
	if err != nil {
		return err
	}
	config.Observer = telemetry.ClusterObserver()
	node, err := cluster.Join(ctx, config)
	if err != nil {
		return err
	}
	defer telemetry.WatchNode(node)()
	rt, err := es.Open(es.Config{Store: db, Observer: telemetry.Observer()}) //nolint:contextcheck // the runtime outlives the call
	if err != nil {
		return err
	}
	defer telemetry.Watch(rt)()
	totals.Observer = telemetry.ProjectionObserver()
	running, err := projection.New(totals)
	if err != nil {
		return err
	}
	defer telemetry.WatchProjection("totals", running)()
	if _, err = ddata.Start(ctx, node, ddata.Config{Observer: telemetry.ReplicatorObserver()}); err != nil {
		return err
	}
	// endregion
	if _, err = sharding.Host(ctx, node, rt, typ, sharding.Options{}); err != nil {
		return err
	}
	// region admin
	admin := console.AdminHandler(sharding.NewHealth(node, sharding.HealthConfig{}), promhttp.Handler()) // without a cluster: console.RuntimeHealth(rt)
	server := &http.Server{Addr: "127.0.0.1:6060", Handler: admin, ReadTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	// endregion
	return server.Close()
}
