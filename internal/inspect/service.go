// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/transport"
)

// The names of the services.
const (
	InspectService    = "inspect"
	ProjectionService = "projection"
	RuntimeService    = "runtime"
)

var (
	// ErrNoService is matched if the node does not have the service.
	ErrNoService = errors.New("inspect: the node does not have this service")
	// ErrNotFound is matched for a persistence ID, an event, a snapshot or a projection that does
	// not exist.
	ErrNotFound = errors.New("inspect: not found")
	// ErrInvalid is matched for a request that no server accepts.
	ErrInvalid = errors.New("inspect: invalid request")
	// ErrNoType is matched if the Go code of the entity type is not part of the node's program, so
	// that its states cannot be computed.
	ErrNoType = errors.New("inspect: the entity type is not part of the program")
	// ErrUnsupported is matched if the node's database lacks the requested function: it has no
	// journal, no snapshot store, no list of persistence IDs or no queries.
	ErrUnsupported = errors.New("inspect: the database of the node does not support the request")
	// ErrRunning is matched if a verification runs already.
	ErrRunning = errors.New("inspect: a verification is running")
)

// The commands.
const (
	cmdTypes       = "types"
	cmdIDs         = "ids"
	cmdEvents      = "events"
	cmdEvent       = "event"
	cmdState       = "state"
	cmdDifference  = "difference"
	cmdLive        = "live"
	cmdSnapshots   = "snapshots"
	cmdSnapshot    = "snapshot"
	cmdPending     = "pending"
	cmdTail        = "tail"
	cmdVerify      = "verify"
	cmdVerifyStart = "verify-start"
	cmdVerifyStop  = "verify-stop"
	cmdStatus      = "status"
	cmdPause       = "pause"
	cmdResume      = "resume"
	cmdRebuild     = "rebuild"
)

func newService(name string, commands map[string]transport.AdminRight) *adminrpc.Service {
	return &adminrpc.Service{
		Package: "inspect", Name: name, Commands: commands, Missing: ErrNoService,
		Errors: map[string]error{
			"not_found": ErrNotFound, "invalid": ErrInvalid, "no_type": ErrNoType, "unsupported": ErrUnsupported, "running": ErrRunning,
		},
	}
}

func inspectService() *adminrpc.Service {
	commands := map[string]transport.AdminRight{cmdVerifyStart: transport.AdminAct, cmdVerifyStop: transport.AdminAct}
	for _, c := range []string{
		cmdTypes, cmdIDs, cmdEvents, cmdEvent, cmdState, cmdDifference, cmdLive, cmdSnapshots, cmdSnapshot, cmdPending, cmdTail, cmdVerify,
	} {
		commands[c] = transport.AdminRead
	}
	return newService(InspectService, commands)
}

func projectionService() *adminrpc.Service {
	return newService(ProjectionService, map[string]transport.AdminRight{
		cmdStatus: transport.AdminRead, cmdPause: transport.AdminAct, cmdResume: transport.AdminAct, cmdRebuild: transport.AdminAct,
	})
}

func runtimeService() *adminrpc.Service {
	return newService(RuntimeService, map[string]transport.AdminRight{cmdStatus: transport.AdminRead})
}

// request is a request for any of the services.
type request struct {
	Service string `json:"service"`
	Command string `json:"command"`

	IDs        *IDQuery         `json:"ids,omitempty"`
	Events     *EventQuery      `json:"events,omitempty"`
	State      *StateQuery      `json:"state,omitempty"`
	Difference *DifferenceQuery `json:"difference,omitempty"`
	Tail       *TailQuery       `json:"tail,omitempty"`
	// ID and Nr are the persistence ID and the number of an event or a snapshot.
	ID string `json:"id,omitempty"`
	Nr uint64 `json:"nr,omitempty"`
	// Name is the name of a projection.
	Name string `json:"name,omitempty"`
}

// reply is a reply of any of the services.
type reply struct {
	adminrpc.Head

	Types       *Catalog      `json:"types,omitempty"`
	IDs         *IDPage       `json:"ids,omitempty"`
	Events      *EventPage    `json:"events,omitempty"`
	State       *StateView    `json:"state,omitempty"`
	Difference  *Difference   `json:"difference,omitempty"`
	Live        *Live         `json:"live,omitempty"`
	Snapshots   *SnapshotPage `json:"snapshots,omitempty"`
	Pending     *PendingPage  `json:"pending,omitempty"`
	Tail        *TailPage     `json:"tail,omitempty"`
	Verify      *Verification `json:"verify,omitempty"`
	Projections *Projections  `json:"projections,omitempty"`
	Runtime     *RuntimeView  `json:"runtime,omitempty"`
}

// Catalog describes the entity types of a program and its database.
type Catalog struct {
	// Types are the entity types of the program, ordered by name.
	Types []TypeView `json:"types,omitempty"`
	// Journal, Snapshots, Lists and Queries report whether the database has a journal and a
	// snapshot store, and whether the journal can list persistence IDs and be read across them.
	Journal   bool `json:"journal"`
	Snapshots bool `json:"snapshots"`
	Lists     bool `json:"lists"`
	Queries   bool `json:"queries"`
	// End is the position after all events, empty without queries.
	End journal.Offset `json:"end,omitempty"`
	// Redacts reports that the node replaces fields of payloads. Acts reports that the node permits
	// actions.
	Redacts bool `json:"redacts,omitempty"`
	Acts    bool `json:"acts,omitempty"`
}

// TypeView describes an entity type.
type TypeView struct {
	Name string `json:"name"`
	// Linked reports that states can be computed. Problem is the reason if not.
	Linked  bool   `json:"linked"`
	Problem string `json:"problem,omitempty"`
	// Hosted reports that the runtime hosts the type, and Resident the number of entities in
	// memory.
	Hosted   bool `json:"hosted,omitempty"`
	Resident int  `json:"resident,omitempty"`
}

// IDQuery selects persistence IDs, in bytewise order.
type IDQuery struct {
	// Type selects the entities of a type. Defaults to all persistence IDs, also those of Refold
	// itself if Prefix begins with "refold.".
	Type string `json:"type,omitempty"`
	// Prefix selects persistence IDs that begin with it; with Type, IDs of entities that do.
	Prefix string `json:"prefix,omitempty"`
	// After is the Next of the previous page. Defaults to the beginning.
	After string `json:"after,omitempty"`
	// Limit is the maximum number of IDs, at most 500. Defaults to 100.
	Limit int `json:"limit,omitempty"`
}

// IDPage is a page of persistence IDs.
type IDPage struct {
	IDs []IDView `json:"ids,omitempty"`
	// Next is After of the next page, empty at the end. A page may have fewer IDs than requested,
	// or none, and still have a Next.
	Next string `json:"next,omitempty"`
}

// IDView describes a persistence ID.
type IDView struct {
	ID string `json:"id"`
	// Type and EntityID are set if the type is part of the program or the ID has the default form.
	Type     string `json:"type,omitempty"`
	EntityID string `json:"entity_id,omitempty"`
	// Highest is the highest sequence number.
	Highest uint64 `json:"highest"`
}

// EventQuery selects events of a persistence ID.
type EventQuery struct {
	ID string `json:"id"`
	// From is the number of the first event of the page. With Backward, the page continues to lower
	// numbers. Defaults to the first event, or with Backward to the last one.
	From     uint64 `json:"from,omitempty"`
	Backward bool   `json:"backward,omitempty"`
	// Limit is the maximum number of events, at most 200. Defaults to 50.
	Limit int `json:"limit,omitempty"`
	// Manifest selects manifests that contain this text. Text selects events whose JSON, as the
	// reply shows it, contains this text, regardless of case. Since and Until are bounds of the
	// time; both are inclusive. They default to no bound.
	Manifest string    `json:"manifest,omitempty"`
	Text     string    `json:"text,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Until    time.Time `json:"until,omitzero"`
}

// EventPage is a page of events, in the order of the query.
type EventPage struct {
	Events []EventView `json:"events,omitempty"`
	// First is the number of the first record that is not deleted, 0 if there is none. Highest is
	// the highest sequence number.
	First   uint64 `json:"first,omitempty"`
	Highest uint64 `json:"highest"`
	// Next is From of the next page, 0 at the end. A page with filters may have no events and still
	// have a Next.
	Next uint64 `json:"next,omitempty"`
}

// EventView is an event.
type EventView struct {
	// ID and Offset are set in a TailPage.
	ID     string         `json:"id,omitempty"`
	Offset journal.Offset `json:"offset,omitempty"`

	Nr       uint64    `json:"nr"`
	Time     time.Time `json:"time"`
	Writer   string    `json:"writer,omitempty"`
	Manifest string    `json:"manifest,omitempty"`
	Tags     []string  `json:"tags,omitempty"`
	// Fence reports a record without an event.
	Fence bool `json:"fence,omitempty"`
	// TraceID and SpanID are those of plugins/otel in hexadecimal, empty for none.
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
	Payload
}

// Payload is a stored payload as JSON.
type Payload struct {
	// Size is the size of the stored payload in bytes.
	Size int `json:"size"`
	// JSON is the payload, after redaction. It is empty if it is too long or if there is a Problem.
	JSON json.RawMessage `json:"json,omitempty"`
	// Cut is the beginning of a JSON text that is too long. It is not valid JSON.
	Cut string `json:"cut,omitempty"`
	// Problem is the reason why the payload cannot be shown or decoded.
	Problem string `json:"problem,omitempty"`
	// Redacted reports that fields were replaced.
	Redacted bool `json:"redacted,omitempty"`
}

// StateQuery selects a state of an entity.
type StateQuery struct {
	ID string `json:"id"`
	// At is the number of the last event that is applied. Defaults to the last event.
	At uint64 `json:"at,omitempty"`
	// Without are the numbers of up to 100 events that are not applied.
	Without []uint64 `json:"without,omitempty"`
}

// StateView is a state of an entity.
type StateView struct {
	// Nr and Time are those of the last event that was applied. Highest is the highest sequence
	// number of the entity.
	Nr      uint64    `json:"nr"`
	Time    time.Time `json:"time,omitzero"`
	Highest uint64    `json:"highest,omitempty"`
	// From is the number of the snapshot or checkpoint from which the state was computed, 0 for
	// none. Records is the number of records that were applied after it.
	From     uint64 `json:"from,omitempty"`
	Records  uint64 `json:"records,omitempty"`
	Manifest string `json:"manifest,omitempty"`
	Payload
}

// DifferenceQuery selects two states of an entity. One event is the difference of its number and
// the number before it.
type DifferenceQuery struct {
	ID string `json:"id"`
	// From is the number of the last event before the difference; 0 is the empty state. To is the
	// number of the last event of the difference. From may be greater than To.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// Without are the numbers of up to 100 events that are not applied to the second state.
	Without []uint64 `json:"without,omitempty"`
}

// Difference is the difference of two states.
type Difference struct {
	// Before and After are the states, without their JSON.
	Before StateView `json:"before"`
	After  StateView `json:"after"`
	// Equal reports that both states have the same encoding.
	Equal bool `json:"equal,omitempty"`
	// Changes are the fields that differ, at most 100. Omitted is the number of the others. Problem
	// is the reason if the list is empty and the states are not equal.
	Changes []Change `json:"changes,omitempty"`
	Omitted int      `json:"omitted,omitempty"`
	Problem string   `json:"problem,omitempty"`
}

// Live compares the state of an entity in memory with the state that its events give.
type Live struct {
	// Presence is that of the entity in this process: "absent", "recovering" or "running". The
	// other fields are set for a running entity.
	Presence string `json:"presence"`
	// State is the state in memory.
	State *StateView `json:"state,omitempty"`
	// Difference is that of the replayed state (before) and the state in memory (after).
	Difference *Difference `json:"difference,omitempty"`
}

// SnapshotPage lists the snapshots of a persistence ID, the highest number first.
type SnapshotPage struct {
	// Snapshots has at most 100 entries. More reports that there are others.
	Snapshots []SnapshotView `json:"snapshots,omitempty"`
	More      bool           `json:"more,omitempty"`
}

// SnapshotView describes a snapshot.
type SnapshotView struct {
	Nr   uint64    `json:"nr"`
	Time time.Time `json:"time"`
}

// PendingPage lists the unconfirmed deliveries of an entity.
type PendingPage struct {
	// Live reports that the list comes from the entity in memory, so that Attempts and Problem are
	// known. Otherwise it comes from the state that the events give.
	Live bool `json:"live,omitempty"`
	// Deliveries has at most 100 entries. Total is the number of all.
	Deliveries []Delivery `json:"deliveries,omitempty"`
	Total      int        `json:"total"`
}

// Delivery is an unconfirmed delivery.
type Delivery struct {
	// Part is the name of the outbox, and Nr the number of the delivery in it.
	Part string `json:"part"`
	Nr   uint64 `json:"nr"`
	// Type and ID are the type and the ID of the receiving entity.
	Type string `json:"type"`
	ID   string `json:"id"`
	// Command is the Go type of the message.
	Command string `json:"command"`
	// Attempts counts the transmissions. Failure is the last error of the delivery.
	Attempts int    `json:"attempts,omitempty"`
	Failure  string `json:"failure,omitempty"`
	Payload
}

// TailQuery selects events of all entities, in the order of the journal.
type TailQuery struct {
	// After is the Next of the previous page. Defaults to the beginning.
	After journal.Offset `json:"after,omitempty"`
	// FromEnd returns no events and the position after all events.
	FromEnd bool `json:"from_end,omitempty"`
	// Types, Tag and ID select events. They default to all.
	Types []string `json:"types,omitempty"`
	Tag   string   `json:"tag,omitempty"`
	ID    string   `json:"id,omitempty"`
	// Limit is the maximum number of events, at most 200. Defaults to 100.
	Limit int `json:"limit,omitempty"`
}

// TailPage is a page of events of all entities.
type TailPage struct {
	Events []EventView `json:"events,omitempty"`
	// Next is After of the next page. More reports that this page can be read immediately.
	Next journal.Offset `json:"next"`
	More bool           `json:"more,omitempty"`
}

// Verification is the state of the verification of a journal.
type Verification struct {
	// Running reports that the verification runs. Started is zero if none was started. Ended is
	// zero while it runs.
	Running bool      `json:"running,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// IDs, Records and Snapshots count the verified data. ByType counts the IDs and records by
	// type, for up to 100 types.
	IDs       uint64               `json:"ids"`
	Records   uint64               `json:"records"`
	Snapshots uint64               `json:"snapshots"`
	ByType    map[string]TypeCount `json:"by_type,omitempty"`
	// Problems has at most 100 problems. Omitted is the number of the others.
	Problems []ProblemView `json:"problems,omitempty"`
	Omitted  uint64        `json:"omitted,omitempty"`
	// Failure is the reason if the verification ended early.
	Failure string `json:"failure,omitempty"`
}

// TypeCount counts the data of a type.
type TypeCount struct {
	IDs     uint64 `json:"ids"`
	Records uint64 `json:"records"`
}

// ProblemView is a fault in the stored data.
type ProblemView struct {
	ID string `json:"id,omitempty"`
	// Nr is the number of the faulty record or snapshot, 0 if the fault does not concern one.
	Nr   uint64 `json:"nr,omitempty"`
	Text string `json:"text"`
}

// Projections lists the projections of a program, ordered by name.
type Projections struct {
	Projections []ProjectionView `json:"projections,omitempty"`
}

// ProjectionView describes a projection in one process. The counts start with the process.
type ProjectionView struct {
	Name  string `json:"name"`
	State string `json:"state"` // in words, as projection.State.String
	// Paused reports a pause in this process, also if State differs because no event is pending.
	Paused   bool   `json:"paused,omitempty"`
	Handled  uint64 `json:"handled"`
	Skipped  uint64 `json:"skipped"`
	Retries  uint64 `json:"retries"`
	Restarts uint64 `json:"restarts"`
	// Lag is in nanoseconds. It has no meaning if LagUnknownSince is set.
	Lag             time.Duration `json:"lag"`
	LagUnknownSince time.Time     `json:"lag_unknown_since,omitzero"`
	CaughtUp        bool          `json:"caught_up,omitempty"`
	Failure         *FailureView  `json:"failure,omitempty"`
	Failures        int           `json:"failures,omitempty"`
	NextTry         time.Time     `json:"next_try,omitzero"`
	Rebuilds        bool          `json:"rebuilds,omitempty"` // the handler supports a rebuild
	Workers         []WorkerView  `json:"workers,omitempty"`
}

// FirstFailure returns the last error of the projection, or else that of its first worker with one. It
// returns nil if there is none.
func (p *ProjectionView) FirstFailure() *FailureView {
	first := p.Failure
	for i := range p.Workers {
		first = cmp.Or(first, p.Workers[i].Failure)
	}
	return first
}

// WorkerView describes a worker of a projection.
type WorkerView struct {
	Slices          string         `json:"slices"` // such as 0-255
	State           string         `json:"state"`
	Offset          journal.Offset `json:"offset,omitempty"`
	LastEvent       time.Time      `json:"last_event,omitzero"`
	Handled         uint64         `json:"handled"`
	Skipped         uint64         `json:"skipped"`
	Lag             time.Duration  `json:"lag"`
	LagUnknownSince time.Time      `json:"lag_unknown_since,omitzero"`
	CaughtUp        bool           `json:"caught_up,omitempty"`
	Failure         *FailureView   `json:"failure,omitempty"`
	Failures        int            `json:"failures,omitempty"`
	NextTry         time.Time      `json:"next_try,omitzero"`
}

// FailureView is the last error of a projection or a worker.
type FailureView struct {
	Text string `json:"text"`
	// ID, Nr, Manifest and Offset are those of the event that failed, empty if no event is the
	// cause.
	ID       string         `json:"id,omitempty"`
	Nr       uint64         `json:"nr,omitempty"`
	Manifest string         `json:"manifest,omitempty"`
	Offset   journal.Offset `json:"offset,omitempty"`
	// Undecodable reports that the event could not be decoded.
	Undecodable bool `json:"undecodable,omitempty"`
}

// RuntimeView describes a process.
type RuntimeView struct {
	Started time.Time     `json:"started"`
	Uptime  time.Duration `json:"uptime"`
	// Version is that of the program, Refold that of this module, Go that of the Go release.
	Version    string `json:"version,omitempty"`
	Refold     string `json:"refold,omitempty"`
	Go         string `json:"go"`
	Goroutines int    `json:"goroutines"`
	// Heap is the memory in use by objects, Memory all memory of the Go runtime, in bytes.
	Heap   uint64 `json:"heap"`
	Memory uint64 `json:"memory"`
	CPUs   int    `json:"cpus"`
	// Hosts reports that the program has a runtime of entities. The fields below are zero
	// otherwise.
	Hosts bool `json:"hosts,omitempty"`
	// JournalBreakerOpen and SnapshotBreakerOpen report an open circuit breaker.
	JournalBreakerOpen  bool            `json:"journal_breaker_open,omitempty"`
	SnapshotBreakerOpen bool            `json:"snapshot_breaker_open,omitempty"`
	Entities            []EntityFigures `json:"entities,omitempty"`
	// Load is nil if the runtime does not use the observer of a Meter.
	Load *Load `json:"load,omitempty"`
}

// EntityFigures describes the entities of a type in memory.
type EntityFigures struct {
	Type     string `json:"type"`
	Resident int    `json:"resident"`
	// Inbox is the number of messages in mailboxes, Stash the number of messages that wait in
	// entities. If the type has more than 10,000 entities in memory, both are estimates.
	Inbox int `json:"inbox"`
	Stash int `json:"stash"`
}

// Load is the load of a runtime. Rates and latencies are those of the last 10 to 20 seconds.
type Load struct {
	// Commands, Failed and Dropped are totals: handled commands, those that were answered with an
	// error, and messages without a waiting caller that could not be delivered.
	Commands uint64 `json:"commands"`
	Failed   uint64 `json:"failed"`
	Dropped  uint64 `json:"dropped"`
	// PerSecond is the rate of commands.
	PerSecond float64 `json:"per_second"`
	// P50 and P99 are latencies of commands in nanoseconds.
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
}

// Client sends requests of an operator to nodes. An empty node means any node. Its methods are safe
// for concurrent use. They return the errors of transport.AdminClient and those of this package,
// and transport.ErrDenied for an action that the node does not permit.
type Client struct{ inspect, projection, runtime *adminrpc.Client }

// NewClient returns a client. The caller closes admin.
func NewClient(admin transport.AdminClient) *Client {
	return &Client{
		adminrpc.NewClient(admin, inspectService()), adminrpc.NewClient(admin, projectionService()), adminrpc.NewClient(admin, runtimeService()),
	}
}

// ask sends a request and returns the part of the reply that get selects.
func ask[T any](ctx context.Context, c *adminrpc.Client, node string, r request, get func(*reply) *T) (*T, error) {
	answer, err := adminrpc.Ask[reply](ctx, c, node, r.Command, r)
	if err != nil {
		return nil, err
	}
	value := get(answer)
	if value == nil {
		return nil, c.Malformed(r.Command, "no result")
	}
	return value, nil
}

// Types returns the entity types and the abilities of the database.
func (c *Client) Types(ctx context.Context, node string) (*Catalog, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdTypes}, func(r *reply) *Catalog { return r.Types })
}

// IDs returns a page of persistence IDs.
func (c *Client) IDs(ctx context.Context, node string, q IDQuery) (*IDPage, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdIDs, IDs: &q}, func(r *reply) *IDPage { return r.IDs })
}

// Events returns a page of events of a persistence ID.
func (c *Client) Events(ctx context.Context, node string, q EventQuery) (*EventPage, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdEvents, Events: &q}, func(r *reply) *EventPage { return r.Events })
}

// Event returns one event with more of its payload than Events, in a page with one event.
func (c *Client) Event(ctx context.Context, node, id string, nr uint64) (*EventPage, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdEvent, ID: id, Nr: nr}, func(r *reply) *EventPage { return r.Events })
}

// State returns the state of an entity at a number.
func (c *Client) State(ctx context.Context, node string, q StateQuery) (*StateView, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdState, State: &q}, func(r *reply) *StateView { return r.State })
}

// Snapshot returns the state in a snapshot.
func (c *Client) Snapshot(ctx context.Context, node, id string, nr uint64) (*StateView, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdSnapshot, ID: id, Nr: nr}, func(r *reply) *StateView { return r.State })
}

// Difference returns the difference of two states of an entity.
func (c *Client) Difference(ctx context.Context, node string, q DifferenceQuery) (*Difference, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdDifference, Difference: &q}, func(r *reply) *Difference { return r.Difference })
}

// Live compares the state in the memory of the node with the state that the events give. Send the
// request to the node on which the entity runs.
func (c *Client) Live(ctx context.Context, node, id string) (*Live, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdLive, ID: id}, func(r *reply) *Live { return r.Live })
}

// Snapshots lists the snapshots of a persistence ID.
func (c *Client) Snapshots(ctx context.Context, node, id string) (*SnapshotPage, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdSnapshots, ID: id}, func(r *reply) *SnapshotPage { return r.Snapshots })
}

// Pending lists the unconfirmed deliveries of an entity.
func (c *Client) Pending(ctx context.Context, node, id string) (*PendingPage, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdPending, ID: id}, func(r *reply) *PendingPage { return r.Pending })
}

// Tail returns a page of events of all entities.
func (c *Client) Tail(ctx context.Context, node string, q TailQuery) (*TailPage, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: cmdTail, Tail: &q}, func(r *reply) *TailPage { return r.Tail })
}

// Verification returns the state of the verification of the node's journal.
func (c *Client) Verification(ctx context.Context, node string) (*Verification, error) {
	return c.verify(ctx, node, cmdVerify)
}

// StartVerify starts a verification on the node. It is an action. The error matches ErrRunning if
// one runs.
func (c *Client) StartVerify(ctx context.Context, node string) (*Verification, error) {
	return c.verify(ctx, node, cmdVerifyStart)
}

// StopVerify stops the verification. It is an action.
func (c *Client) StopVerify(ctx context.Context, node string) (*Verification, error) {
	return c.verify(ctx, node, cmdVerifyStop)
}

func (c *Client) verify(ctx context.Context, node, command string) (*Verification, error) {
	return ask(ctx, c.inspect, node, request{Service: InspectService, Command: command}, func(r *reply) *Verification { return r.Verify })
}

// Projections returns the projections of a node.
func (c *Client) Projections(ctx context.Context, node string) (*Projections, error) {
	return c.project(ctx, node, cmdStatus, "")
}

// PauseProjection pauses a projection on a node until ResumeProjection. It returns when no handler
// is running. It is an action, like ResumeProjection and RebuildProjection. The reply lists the
// projection.
func (c *Client) PauseProjection(ctx context.Context, node, name string) (*Projections, error) {
	return c.project(ctx, node, cmdPause, name)
}

// ResumeProjection ends a pause.
func (c *Client) ResumeProjection(ctx context.Context, node, name string) (*Projections, error) {
	return c.project(ctx, node, cmdResume, name)
}

// RebuildProjection requests a rebuild of the read model: see projection.Projection.Rebuild.
func (c *Client) RebuildProjection(ctx context.Context, node, name string) (*Projections, error) {
	return c.project(ctx, node, cmdRebuild, name)
}

func (c *Client) project(ctx context.Context, node, command, name string) (*Projections, error) {
	return ask(ctx, c.projection, node, request{Service: ProjectionService, Command: command, Name: name}, func(r *reply) *Projections { return r.Projections })
}

// Runtime describes the process of a node.
func (c *Client) Runtime(ctx context.Context, node string) (*RuntimeView, error) {
	return ask(ctx, c.runtime, node, request{Service: RuntimeService, Command: cmdStatus}, func(r *reply) *RuntimeView { return r.Runtime })
}
