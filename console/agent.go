// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// Type is an entity type whose states an Agent can compute. TypeOf returns one.
type Type = inspect.Type

// TypeOf returns the Type of an entity type.
func TypeOf[S, E any](typ eventsourcing.Type[S, E]) Type { return inspect.TypeOf(typ) }

// Field is a field of an event, a state, a snapshot or a delivery: see AgentConfig.Redact.
type Field = inspect.Field

// Meter measures the load of a runtime. The zero value is ready to use. Add its Observer to
// eventsourcing.Config.Observer, and the Meter to AgentConfig.Meter.
type Meter = inspect.Meter

// Projection is a projection that an Agent shows, such as *projection.Projection.
type Projection = inspect.Projection

// AgentConfig configures an Agent.
type AgentConfig struct {
	// Runtime is the runtime of the program. Defaults to none: no entity is in memory.
	Runtime *eventsourcing.Runtime
	// Store is the database. It is not closed. Defaults to that of Runtime.
	Store store.DB
	// Types are the entity types whose states can be computed. Defaults to none: pages show the events
	// and not the states.
	Types []Type
	// Projections are the projections of the program. Defaults to none.
	Projections []Projection
	// Meter measures the load of Runtime. Defaults to none.
	Meter *Meter
	// Node makes the agent available to operators of its cluster, as the services inspect, projection
	// and runtime. Defaults to none: only consoles in the same process reach the agent.
	Node *cluster.Node
	// Redact reports whether a field of a payload is replaced by "(redacted)" before it leaves the
	// process. It is called concurrently for each field. A field is replaced if Redact panics. Defaults
	// to none.
	Redact func(Field) bool
	// AllowActions permits operators to pause and rebuild projections and to verify the journal.
	// Defaults to false.
	AllowActions bool
	// Version is the version of the program. Defaults to that of its main module.
	Version string
	// Logger gets a line for each action in this process. Defaults to a logger that discards all lines.
	Logger *slog.Logger
}

// Agent shows one process to consoles: its journal, entities, projections and runtime. It implements
// transport.AdminClient for its own process, so that the console of a program without a cluster needs
// no network. Its methods are safe for concurrent use.
type Agent struct {
	server *inspect.Server
	local  transport.AdminClient
	node   string // the name of the node, empty without a cluster
}

var _ transport.AdminClient = (*Agent)(nil)

// NewAgent starts an agent. Close it before the runtime and the database. The error matches
// ErrInvalid and names the invalid fields.
func NewAgent(cfg AgentConfig) (*Agent, error) {
	if cfg.Store == nil && cfg.Runtime == nil {
		var errs fielderror.Errors
		errs.Addf("AgentConfig.Store", "is missing, and AgentConfig.Runtime as well")
		return nil, errs.Err(ErrInvalid)
	}
	server, err := inspect.NewServer(inspect.Config{
		Runtime: cfg.Runtime, Store: cfg.Store, Types: cfg.Types, Projections: cfg.Projections, Meter: cfg.Meter, Redact: cfg.Redact,
		AllowActions: cfg.AllowActions, Version: cfg.Version, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fielderror.Rename(ErrInvalid, err, "Config.", "AgentConfig.")
	}
	a := &Agent{server: server, local: server.AdminClient()}
	if cfg.Node != nil {
		a.node = cfg.Node.Self().Name
		server.Register(cfg.Node)
	}
	return a, nil
}

// Ask implements transport.AdminClient. It answers requests to any node and to the own node. The
// error for other nodes matches transport.ErrNoNode.
func (a *Agent) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	if node != "" && node != a.node {
		return nil, fmt.Errorf("console: agent: %w: %q, the agent answers for its own process", transport.ErrNoNode, node)
	}
	return a.local.Ask(ctx, service, right, node, request)
}

// agentClose is the time that Close waits for requests.
const agentClose = 10 * time.Second

// Close ends the agent and waits up to 10 s for its requests.
func (a *Agent) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), agentClose, errors.New("console: agent: requests did not end in time"))
	defer cancel()
	return a.server.Close(ctx)
}
